"""Accepts the connections of a listening socket, and makes their TLS.

A connection that has sent nothing is a socket and an entry in the selector, some 3 kB. Its TLS
state is allocated at its first byte, its HTTP handler after its handshake. Nothing of a failed
handshake outlives its connection. asyncio's own server allocates both at once, and leaves them in
a reference cycle for each handshake that fails.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import cast

from kubeletpy.wire.accepting import ASYNCIOS_TEXT, OUT_OF_RESOURCES
from kubeletpy.wire.door import Entrance, Guest

log = logging.getLogger(__name__)

BACKLOG = 256
"""Connections accepted in a row before the loop does something else, as in asyncio's server."""
TLS_BUFFER = 32 << 10
"""Bytes that asyncio reads of a TLS connection at once. Each connection keeps a buffer of that size
even while idle; asyncio's 256 KiB would be 256 MB for a thousand idle clients."""
HANDSHAKE_S = 10.0
"""Seconds that a TLS handshake may take from its first byte."""
ACCEPT_RETRY_S = 1.0
"""Pause of accepting when the process has no descriptors left."""


class Listener:
    """Serves one listening socket. Make it inside a running event loop."""

    def __init__(
        self,
        entrance: Entrance,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Args:
        entrance: closed together with this listener.
        make: the protocol of a connection, called once its TLS is made.
        tls: None: plain connections.
        """
        if tls is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER  # in the whole process
        self._loop = asyncio.get_running_loop()
        self._entrance = entrance
        self._make = make
        self._tls = tls
        self._silent: set[Guest] = set()
        """Connections that have sent nothing yet."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to accept."""
        self._retry = None
        self._loop.add_reader(self._entrance, self._accept)

    def close(self) -> None:
        """Stop listening; end connections whose protocol has not been made."""
        if self._entrance.fileno() == -1:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._entrance)
        self._entrance.close()
        for guest in self._silent:
            self._loop.remove_reader(guest)
            guest.close()
        self._silent.clear()
        for task in self._connecting:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                guest, _ = self._entrance.accept_next()
                guest.setblocking(False)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    log.warning("a connection can't be accepted", extra={"why": str(error)})
                    return
                self._pause(error)
                return
            self._silent.add(guest)
            self._loop.add_reader(guest, self._first_byte, guest)

    def _pause(self, error: OSError) -> None:
        self._loop.remove_reader(self._entrance)
        self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
        self._loop.call_exception_handler({"message": ASYNCIOS_TEXT, "exception": error})

    def _first_byte(self, guest: Guest) -> None:
        try:
            found = guest.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            found = b""
        self._loop.remove_reader(guest)
        self._silent.discard(guest)
        if not found:
            guest.close()
            return
        task = self._loop.create_task(self._connect(guest))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, guest: Guest) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Arrival(self._make),
                guest,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls is not None else None,
            )
        except BaseException as error:
            self._loop.call_soon(guest.close)  # after the transport, if there is one
            if not isinstance(error, OSError):  # ssl.SSLError and TimeoutError are
                raise
            error.with_traceback(None)  # its frames refer to the future that refers to the error
            log.debug("a connection ended in its handshake", extra={"error": type(error).__name__})


class _Arrival(asyncio.Protocol):
    """Hands a connection to its protocol, which is made now."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)
