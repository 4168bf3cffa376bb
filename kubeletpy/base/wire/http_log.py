"""aiohttp's log of a server's connections, without the lines that any untrusted client can cause.

Anyone who reaches a port can send invalid HTTP, or leave before the answer: aiohttp's lines about
that are dropped, and it is not quoted.
"""

from __future__ import annotations

import logging

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)

_OF_CLIENTS = (
    HttpProcessingError,
    web.RequestPayloadError,
    web.PayloadAccessError,
    ClientConnectionResetError,
)


class _NoHttp(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, _OF_CLIENTS):
            return True
        log.debug(
            "a client sent something other than an HTTP request, or has disconnected",
            extra={"error": type(error).__name__},
        )
        return False


http_log = logging.getLogger(f"{__name__}.http")
"""The logger to create a server with."""
http_log.addFilter(_NoHttp())
