"""The process's log sinks as the server sees them: their verbosity, and whether they work.

Also ``/debug/flags/v``. Knows handlers only by what they can do.
"""

from __future__ import annotations

import logging
import re
from typing import Protocol, runtime_checkable

from aiohttp import web

log = logging.getLogger(__name__)

_LEVEL = re.compile(r"[+-]?[0-9]{1,9}")


@runtime_checkable
class LogSink(Protocol):
    """A log handler that can be queried and set."""

    def set_verbosity(self, level: int) -> None:
        """From now on, write what this verbosity (the kubelet's ``-v``) shows."""

    def problem(self) -> str:
        """Why lines are not written; empty when they are."""


def sinks() -> list[LogSink]:
    """All log handlers that are sinks."""
    return [each for each in logging.getLogger().handlers if isinstance(each, LogSink)]


def log_problem() -> str:
    """The health check ``log``."""
    return next((why for sink in sinks() if (why := sink.problem())), "")


async def set_verbosity(request: web.Request) -> web.StreamResponse:
    """PUT: the body is the new verbosity."""
    text = (await request.text()).strip()
    if not _LEVEL.fullmatch(text):
        shown = text[:40].encode("ascii", "backslashreplace").decode()
        why = f'failed set klog.logging.verbosity {shown}: parsing "{shown}": invalid syntax'
        return web.Response(status=400, text=f"{why}\n")
    for sink in sinks():
        sink.set_verbosity(int(text))
    log.info("the verbosity of logs has been set", extra={"verbosity": int(text)})
    return web.Response(text=f"successfully set klog.logging.verbosity to {text}\n")
