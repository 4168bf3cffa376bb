"""``/debug/flags/v``: sets the verbosity of the process's logs."""

from __future__ import annotations

import logging
import re

from aiohttp import web

from kubeletpy.server.debug.log_sinks import sinks

log = logging.getLogger(__name__)

_LEVEL = re.compile(r"[+-]?[0-9]{1,9}")


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
