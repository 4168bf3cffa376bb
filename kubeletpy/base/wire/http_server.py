"""Adapts aiohttp's servers: headers of all answers, no reference cycles of errors, a quiet log.

An error that is kept after it was caught refers to the frames that it passed, which refer to it.
So every invalid request left its connection in a reference cycle, for the garbage collector. Must
never depend on the request, nor quote it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError


async def set_up(runner: web.AppRunner) -> Callable[[], asyncio.Protocol]:
    """Set up a server; returns what makes the protocol of each connection.

    No answer names the software behind it, and no browser guesses its type. This includes aiohttp's
    own answers to invalid requests, which pass no middleware and no signal.
    """
    await runner.setup()
    server = runner.server
    assert server is not None, "it has been set up"
    make_request: Any = server.request_factory
    server.request_factory = partial(make_request, _cls=_Request)

    def make_protocol() -> asyncio.Protocol:
        made = server()
        made.__class__ = _RequestHandler
        return made

    return make_protocol


class _Request(web.Request):
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Called by aiohttp before the headers of an answer are sent."""
        await super()._prepare_hook(response)
        response.headers.pop("Server", None)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        if isinstance(response, web.HTTPException):
            response.with_traceback(None)


class _RequestHandler(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that is no HTTP, or whose handler failed."""
        answer = super().handle_error(request, status, exc, message)
        if exc is not None:
            exc.with_traceback(None)
        return answer


# The log. Anyone who reaches a port can send invalid HTTP, or leave before the answer: aiohttp's
# lines about that are dropped.

log = logging.getLogger(__name__)

_CLIENT_ERRORS = (
    HttpProcessingError,
    web.RequestPayloadError,
    web.PayloadAccessError,
    ClientConnectionResetError,
)


class _NoHttp(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, _CLIENT_ERRORS):
            return True
        log.debug(
            "a client sent something other than an HTTP request, or has disconnected",
            extra={"error": type(error).__name__},
        )
        return False


http_log = logging.getLogger(f"{__name__}.http")
"""The logger to create a server with."""
http_log.addFilter(_NoHttp())
