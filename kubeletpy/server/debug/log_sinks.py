"""The process's log sinks as the server sees them: their verbosity, and whether they work.

Uses handlers only through their methods.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable


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
