"""Listening sockets of an event loop on a machine that has no descriptors left.

asyncio then stops listening for a second, but first tries to accept as often as the backlog is
long. Each of these tries is logged, and begins to listen once more, on its own. A second of clients
that connect became a quarter of a million tracebacks, and a loop that did nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import Any

log = logging.getLogger(__name__)

OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors after which asyncio waits a second."""
SAID_AGAIN_S = 60.0
ASYNCIOS_TEXT = "socket.accept() out of system resource"


class ListeningSocket(socket.socket):
    """A listening socket that ends a round of accepting once nothing can be accepted."""

    _out = False

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            BlockingIOError: there is none, or the one before could not be accepted: it stays in the
                kernel's backlog until the loop listens again.
            OSError: it can not be accepted.
        """
        if self._out:
            self._out = False
            raise BlockingIOError
        try:
            return self.accept_next()
        except OSError as error:
            self._out = error.errno in OUT_OF_RESOURCES
            raise

    def accept_next(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises OSError."""
        return super().accept()


class LoopProblems:
    """An event loop's exception handler: logs lasting errors once a minute, without traceback."""

    def __init__(self) -> None:
        self._said_at = -SAID_AGAIN_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a problem that nobody else handles."""
        if context.get("message") != ASYNCIOS_TEXT:
            loop.default_exception_handler(context)
            return
        now = time.monotonic()
        if now - self._said_at >= SAID_AGAIN_S:
            self._said_at = now
            log.warning("connections have to wait", extra={"why": str(context.get("exception"))})
