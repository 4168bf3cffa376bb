"""Listening sockets for untrusted clients: accepts connections, limits them, and makes their TLS.

A connection that has sent nothing is a socket and an entry in the selector, some 3 kB. Its TLS
state is allocated when its handshake begins, its HTTP handler afterwards. Few handshakes are under
way at once, and few begin in one turn of the loop. So clients that stop in the middle of theirs
cost as little as silent ones, and delay nobody. Nothing of a failed handshake outlives its
connection. asyncio's own server allocates both at once. It leaves them in a reference cycle for
each handshake that fails.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import logging
import os
import resource
import select
import socket
import ssl
import time
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

# A machine without free descriptors. asyncio then stops listening for a second, but first tries to
# accept as often as the backlog is long. Each of these tries is logged, and begins to listen once
# more, on its own. A second of connecting clients became a quarter of a million tracebacks.

log = logging.getLogger(__name__)

OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors after which asyncio waits a second."""
STATED_AGAIN_S = 60.0
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
        self._stated_at = -STATED_AGAIN_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a problem that nobody else handles."""
        if context.get("message") != ASYNCIOS_TEXT:
            loop.default_exception_handler(context)
            return
        now = time.monotonic()
        if now - self._stated_at >= STATED_AGAIN_S:
            self._stated_at = now
            log.warning("connections have to wait", extra={"why": str(context.get("exception"))})


# Limits of a port. Clients without credentials are unidentified: they are few and stay briefly.
# When there are too many, of one address or of all, the oldest connection of the address with the
# most is closed. So clients that open connections and send nothing can't keep others out. Nor can
# one authorized client take all connections: an identity has at most SHARE times as many as are
# still free. A connection counts until its descriptor is closed, also during the TLS handshake.

UNKNOWN_S = 20.0
"""How long a connection may go without an authenticated request, TLS handshake included."""
UNKNOWN = 512
"""Connections of a port without an authenticated request yet. One that is silent holds 3 kB, one in
a TLS handshake 55 kB."""
UNKNOWN_OF_ONE = 256
"""The same for one address. An API server may have thousands of streams from one address: each is
authenticated by its first request, some milliseconds after it has connected."""
V6_NETWORK = 64
"""Bits of an IPv6 address that count as one source: one host may own all addresses below them."""
REFUSALS_LOGGED_EVERY_S = 60.0
SHARE = 3
"""A single identity gets three quarters of a port, two get three sevenths each, and so on."""
SPARE = 3
"""Descriptors that a connection may take (one more to a runtime or node, one of a file)."""


def most_connections(desired: int) -> int:
    """``desired``, or as many as this process's descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return desired if soft == resource.RLIM_INFINITY else max(2, min(desired, soft // SPARE))


class ConnectionLimiter:
    """The connections of one port, at most ``limit``, up to ``UNKNOWN`` of them unidentified."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most_unknown = max(2, min(UNKNOWN, limit // 2))
        self._refusals = _Refusals()
        self._inside: dict[int, LimitedConnection] = {}
        self._unknown: dict[str, dict[LimitedConnection, None]] = {}
        self._count = 0
        self._known: Counter[str] = Counter()

    def is_full(self) -> bool:
        """Whether there is no room for another connection."""
        return len(self._inside) >= self._limit

    def close_unidentified(self) -> bool:
        """Whether the next connection must wait for an unidentified one, now being closed, to
        leave.

        Each call closes one, so a connection waits at most while there are unidentified ones.
        """
        if not self._unknown:
            return False
        self._send_one_away("the port is full")
        return True

    def enter(self, connection: LimitedConnection) -> bool:
        """Admit a connection; False: there is no room, and it must be closed."""
        if self.is_full():
            self._refusals.add(connection.source, "the port is full")
            return False
        if len(of_source := self._unknown.get(connection.source, {})) >= UNKNOWN_OF_ONE:
            self._send_away(next(iter(of_source)))
            self._refusals.add(
                connection.source, "too many unauthenticated connections of one address"
            )
        elif self._count >= self._most_unknown:
            self._send_one_away("too many unauthenticated connections")
        self._inside[connection.fileno()] = connection
        self._unknown.setdefault(connection.source, {})[connection] = None
        self._count += 1
        connection.timer = asyncio.get_running_loop().call_later(
            UNKNOWN_S, self._send_away, connection
        )
        return True

    def admit_identity(self, transport: asyncio.BaseTransport | None, who: str) -> bool:
        """A connection belongs to ``who``, an authorized identity.

        False: the identity has its share of connections, and this one must be closed.
        """
        connection = self._inside.get(fileno_of(transport))
        if connection is None or connection.who == who:
            return True
        has = self._known[who]
        if has and has >= SHARE * (self._limit - len(self._inside)):
            self._refusals.add(connection.source, "one client has too many connections")
            return False
        self._remove_unidentified(connection)
        self._forget(connection)
        connection.who = who
        self._known[who] += 1
        return True

    def leave(self, connection: LimitedConnection) -> None:
        """A connection has been closed."""
        self._remove_unidentified(connection)
        self._forget(connection)
        if self._inside.get(connection.fileno()) is connection:
            del self._inside[connection.fileno()]

    def _send_one_away(self, why: str) -> None:
        most = max(self._unknown.values(), key=len)
        connection = next(iter(most))
        self._send_away(connection)
        self._refusals.add(connection.source, why)

    def _send_away(self, connection: LimitedConnection) -> None:
        self._remove_unidentified(connection)
        connection.end()

    def _forget(self, connection: LimitedConnection) -> None:
        """Stop counting a connection for its identity."""
        if connection.who is None:
            return
        self._known[connection.who] -= 1
        if self._known[connection.who] <= 0:
            del self._known[connection.who]
        connection.who = None

    def _remove_unidentified(self, connection: LimitedConnection) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None
        of_source = self._unknown.get(connection.source, {})
        if connection in of_source:
            del of_source[connection]
            self._count -= 1
            if not of_source:
                del self._unknown[connection.source]


class _Refusals:
    """Logs that connections were closed: at once, then at most once in REFUSALS_LOGGED_EVERY_S."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_at = float("-inf")

    def add(self, source: str, why: str) -> None:
        """A connection is closed."""
        self._count += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at < REFUSALS_LOGGED_EVERY_S:
            return
        log.warning(
            "connections to a port of this node are closed",
            extra={"why": why, "last_from": source, "closed": self._count},
        )
        self._logged_at, self._count = now, 0


_MAPPED = "::ffff:"
"""Prefix of an IPv4 address on a socket of both families, by the kernel."""


class LimitedConnection(socket.socket):
    """A connection that leaves its limiter when it is closed."""

    limiter: ConnectionLimiter
    source: str = ""
    who: str | None = None
    timer: asyncio.TimerHandle | None = None
    on_end: Callable[[], object] | None = None
    """Called when the door ends it; None: whoever reads from it notices."""

    def getpeername(self) -> Any:
        """The client's address; that of an IPv4 client without the form that IPv6 has for it."""
        address = super().getpeername()
        if not isinstance(address, tuple) or not address[0].startswith(_MAPPED):
            return address
        return address[0].removeprefix(_MAPPED), address[1]

    def end(self) -> None:
        """Make its reader see the end."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        if self.on_end is not None:
            self.on_end()

    def close(self) -> None:
        """Close the socket and leave the limiter."""
        self.limiter.leave(self)
        super().close()


class LimitedListener(ListeningSocket):
    """A listening socket whose connections are limited."""

    limiter: ConnectionLimiter

    def accept_next(self) -> tuple[LimitedConnection, Any]:
        """The next connection.

        Raises:
            BlockingIOError: there is no room yet, and the connection stays in the kernel's backlog;
                or there will be none, and it is closed. Either ends the loop's round of accepting.
        """
        if self.limiter.is_full() and self._somebody_waits() and self.limiter.close_unidentified():
            # Unidentified connections being closed leave when the loop sees their end, which
            # is not before this round of accepting is over.
            raise BlockingIOError
        number, address = self._accept()  # type: ignore[attr-defined]
        connection = LimitedConnection(self.family, self.type, self.proto, fileno=number)
        connection.limiter = self.limiter
        connection.source = source_of(address)
        if not self.limiter.enter(connection):
            connection.close()
            # after ConnectionAbortedError, the loop of Python 3.14 goes on in the same round: all
            # that wait would be closed before the unidentified ones being closed have left
            raise BlockingIOError("too many connections")
        return connection, address

    def _somebody_waits(self) -> bool:
        """Whether a connection is in the kernel's backlog: the loop also calls without one."""
        requested = select.poll()
        requested.register(self, select.POLLIN)
        return bool(requested.poll(0))


def guarded(listening: socket.socket, limit: int) -> LimitedListener:
    """The same listening socket with a door; the original must still be closed by its owner."""
    made = LimitedListener(
        listening.family, listening.type, listening.proto, fileno=os.dup(listening.fileno())
    )
    made.setblocking(False)
    made.limiter = ConnectionLimiter(limit)
    return made


def source_of(address: Any) -> str:
    """The part of a peer's socket address that its connections are counted by.

    ``("::ffff:10.0.0.1", 4711, 0, 0)`` is ``10.0.0.1``, ``("2001:db8::1", 4711, 0, 0)`` is
    ``2001:db8::/64``; a peer on a Unix socket has none.
    """
    if not isinstance(address, tuple):
        return ""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if not isinstance(host, ipaddress.IPv6Address):
        return str(host)
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return str(ipaddress.ip_network((host, V6_NETWORK), strict=False))


def fileno_of(transport: asyncio.BaseTransport | None) -> int:
    """The descriptor behind a transport; -1: none."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    return int(sock.fileno()) if sock is not None else -1


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
        limited: LimitedListener,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Serve connections once :meth:`start` is called.

        Args:
            limited: closed together with this listener.
            make: the protocol of a connection, called once its TLS is made.
            tls: None: plain connections.
        """
        if tls is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER  # in the whole process
        self._loop = asyncio.get_running_loop()
        self._limited = limited
        self._make = make
        self._tls = tls
        self._silent: set[LimitedConnection] = set()
        """Connections that have sent nothing yet."""
        self._waiting: dict[LimitedConnection, None] = {}
        """Connections whose TLS handshake has not begun, the oldest first."""
        self._handshakes: dict[LimitedConnection, float] = {}
        """Connections in their handshake -> when it began, the oldest first."""
        self._next: asyncio.TimerHandle | None = None
        """Begins further handshakes."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._retry = None
        self._loop.add_reader(self._limited, self._accept)

    def close(self) -> None:
        """Stop listening; end connections whose protocol has not been made."""
        if self._limited.fileno() == -1:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._limited)
        self._limited.close()
        if self._next is not None:
            self._next.cancel()
        for connection in self._silent:
            self._loop.remove_reader(connection)
        for connection in (*self._silent, *self._waiting):
            connection.close()
        self._silent.clear()
        self._waiting.clear()
        for task in self._connecting:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = self._limited.accept_next()
                connection.setblocking(False)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    log.warning("a connection can't be accepted", extra={"why": str(error)})
                    return
                self._pause(error)
                return
            self._silent.add(connection)
            self._loop.add_reader(connection, self._first_byte, connection)

    def _pause(self, error: OSError) -> None:
        self._loop.remove_reader(self._limited)
        self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
        self._loop.call_exception_handler({"message": ASYNCIOS_TEXT, "exception": error})

    def _first_byte(self, connection: LimitedConnection) -> None:
        try:
            found = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            found = b""
        self._loop.remove_reader(connection)
        self._silent.discard(connection)
        if not found:
            connection.close()
            return
        if self._tls is None:
            self._begin(connection)
            return
        self._waiting[connection] = None
        connection.on_end = partial(self._loop.call_soon, self._give_up, connection)
        self._begin_soon(0.0)

    def _give_up(self, connection: LimitedConnection) -> None:
        """The door has ended a connection, which nobody reads if it still waits."""
        if connection in self._waiting:
            del self._waiting[connection]
            connection.close()

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
            of_source = Counter(connection.source for connection in self._handshakes)
            # the newest of them: its client is the most likely to be there still
            connection = min(reversed(self._waiting), key=lambda each: of_source[each.source])
            del self._waiting[connection]
            self._handshakes[connection] = self._loop.time()
            self._begin(connection)
        self._begin_soon(self._make_room())

    def _make_room(self) -> float:
        """End a stalled handshake if none can begin; returns after how many seconds one can."""
        if len(self._handshakes) < HANDSHAKES:
            return 0.0
        of_source = Counter(connection.source for connection in self._handshakes)
        most = max(of_source.values())
        oldest = next(each for each in self._handshakes if of_source[each.source] == most)
        left = self._handshakes[oldest] + STALLED_S - self._loop.time()
        if left > 0:
            return left
        del self._handshakes[oldest]
        oldest.end()
        return 0.0

    def _begin(self, connection: LimitedConnection) -> None:
        connection.on_end = None
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: LimitedConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Arrival(self._make),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls is not None else None,
            )
        except BaseException as error:
            self._loop.call_soon(connection.close)  # after the transport, if there is one
            if not isinstance(error, OSError):  # ssl.SSLError and TimeoutError are
                raise
            error.with_traceback(None)  # its frames refer to the future that refers to the error
            log.debug("a connection ended in its handshake", extra={"error": type(error).__name__})
        finally:
            self._handshakes.pop(connection, None)
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


# Key exchanges. Handshakes run on the event loop, and the peer chooses among the exchanges offered.
# One with a finite-field group takes 150 to 280 ms (measured: ffdhe8192 of TLS 1.3 on a server,
# DHE with 8192 bits on a client), and needs no credentials. Go's crypto/tls, so the kubelet, has
# none.

_CURVES = ("prime256v1", "X25519", "secp384r1", "secp521r1")
"""The curves that Go's clients offer, one at a time: Python before 3.15 can offer one group or all.
Every TLS 1.3 peer has the first (RFC 8446, 9.1)."""
NO_FINITE_FIELD = "!kDHE:!kDHEPSK"
"""A part of a client's cipher list. A server without parameters of its own has no such suite."""


def limit_key_exchange(context: ssl.SSLContext, curve: str = _CURVES[0]) -> None:
    """Offer a single elliptic curve, whose handshakes take about a millisecond."""
    context.set_ecdh_curve(curve)


@functools.cache
def curves() -> tuple[str, ...]:
    """The curves to offer, one after the other: all that this Python can offer.

    Python 3.11.2 of Debian 12 cannot offer X25519.
    """
    return tuple(filter(_can_be_offered, _CURVES))


def _can_be_offered(curve: str) -> bool:
    try:
        limit_key_exchange(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), curve)
    except ssl.SSLError:
        return False
    return True
