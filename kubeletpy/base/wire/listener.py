"""Accepts the connections of a listening socket, and makes their TLS.

A connection that has sent nothing is a socket and an entry in the selector, some 3 kB. Its TLS
state is allocated when its handshake begins, its HTTP handler afterwards. Few handshakes are under
way at once, and few begin in one turn of the loop: clients that stop in the middle of theirs cost
as little as silent ones, and delay nobody. Nothing of a failed
handshake outlives its connection. asyncio's own server allocates both at once, and leaves them in
a reference cycle for each handshake that fails.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

from kubeletpy.base.wire.accepting import ASYNCIOS_TEXT, OUT_OF_RESOURCES
from kubeletpy.base.wire.door import Entrance, Guest

log = logging.getLogger(__name__)

BACKLOG = 256
"""Connections accepted in a row before the loop does something else, as in asyncio's server."""
TLS_BUFFER = 32 << 10
"""Bytes that asyncio reads of a TLS connection at once. Each connection keeps a buffer of that size
even while idle; asyncio's 256 KiB would be 256 MB for a thousand idle clients."""
HANDSHAKE_S = 5.0
"""Seconds that a TLS handshake may take."""
HANDSHAKES = 64
"""TLS handshakes that are under way at once; each holds 55 kB."""
STARTS = 4
"""Handshakes that begin in one turn of the loop; each takes it about a millisecond."""
STALLED_S = 0.5
"""Age at which a handshake makes room for another connection."""
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
        self._waiting: dict[Guest, None] = {}
        """Connections whose TLS handshake has not begun, the oldest first."""
        self._handshakes: dict[Guest, float] = {}
        """Connections in their handshake -> when it began, the oldest first."""
        self._next: asyncio.TimerHandle | None = None
        """Begins further handshakes."""
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
        if self._next is not None:
            self._next.cancel()
        for guest in self._silent:
            self._loop.remove_reader(guest)
        for guest in (*self._silent, *self._waiting):
            guest.close()
        self._silent.clear()
        self._waiting.clear()
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
        if self._tls is None:
            self._begin(guest)
            return
        self._waiting[guest] = None
        guest.on_end = partial(self._loop.call_soon, self._give_up, guest)
        self._begin_soon(0.0)

    def _give_up(self, guest: Guest) -> None:
        """The door has ended a connection, which nobody reads if it still waits."""
        if guest in self._waiting:
            del self._waiting[guest]
            guest.close()

    def _begin_soon(self, seconds: float) -> None:
        if self._next is None:
            self._next = self._loop.call_later(seconds, self._begin_handshakes)

    def _cut_wait_short(self) -> None:
        """A handshake has ended: another one can begin."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._begin_soon(0.0)

    def _begin_handshakes(self) -> None:
        """Begin some of the waiting handshakes, those of addresses with the fewest first."""
        self._next = None
        for _ in range(STARTS):
            if not self._waiting:
                return
            if len(self._handshakes) >= HANDSHAKES:
                break
            of_source = Counter(guest.source for guest in self._handshakes)
            # the newest of them: its client is the most likely to be there still
            guest = min(reversed(self._waiting), key=lambda each: of_source[each.source])
            del self._waiting[guest]
            self._handshakes[guest] = self._loop.time()
            self._begin(guest)
        self._begin_soon(self._make_room())

    def _make_room(self) -> float:
        """End a stalled handshake if none can begin; returns after how many seconds one can."""
        if len(self._handshakes) < HANDSHAKES:
            return 0.0
        of_source = Counter(guest.source for guest in self._handshakes)
        most = max(of_source.values())
        oldest = next(each for each in self._handshakes if of_source[each.source] == most)
        left = self._handshakes[oldest] + STALLED_S - self._loop.time()
        if left > 0:
            return left
        del self._handshakes[oldest]
        oldest.end()
        return 0.0

    def _begin(self, guest: Guest) -> None:
        guest.on_end = None
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
        finally:
            self._handshakes.pop(guest, None)
            if self._waiting:
                self._cut_wait_short()


class _Arrival(asyncio.Protocol):
    """Hands a connection to its protocol, which is made now."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)
