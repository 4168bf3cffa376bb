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
import resource
import select
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from kubeletpy.base.structs import Component

log = logging.getLogger(__name__)

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
WARNED_EVERY_S = 60.0
SHARE = 3
"""A single identity gets three quarters of a port, two get three sevenths each, and so on."""
SPARE = 3
"""Descriptors that a connection may take (one more to a runtime or node, one of a file)."""


def most_connections(desired: int) -> int:
    """``desired``, or as many as this process's descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return desired if soft == resource.RLIM_INFINITY else max(2, min(desired, soft // SPARE))


class ConnectionLimiter(Component):
    """The connections of one port, at most ``limit``, up to half of them unidentified."""

    limit: int
    unknown_s: float | None = None
    """Seconds that one stays unidentified; None for ``UNKNOWN_S``."""

    def __post_init__(self) -> None:
        self._most_unknown = max(2, min(UNKNOWN, self.limit // 2))
        self._unknown_s = UNKNOWN_S if self.unknown_s is None else self.unknown_s
        self._refusals = _SeldomWarning("connections to a port of this node are closed", "closed")
        self._inside: dict[int, Connection] = {}
        self._unknown: dict[str, dict[Connection, None]] = {}
        self._count = 0
        self._known: Counter[str] = Counter()

    def is_full(self) -> bool:
        """Whether there is no room for another connection."""
        return len(self._inside) >= self.limit

    def close_unidentified(self) -> bool:
        """Whether the next connection must wait for an unidentified one, now being closed, to
        leave.

        Each call closes one, so a connection waits at most while there are unidentified ones.
        """
        if not self._unknown:
            return False
        self._send_one_away("the port is full")
        return True

    def enter(self, connection: Connection) -> bool:
        """Admit a connection; False: there is no room, and it must be closed."""
        if self.is_full():
            self._refusals.add(why="the port is full", last_from=connection.source)
            return False
        if len(of_source := self._unknown.get(connection.source, {})) >= UNKNOWN_OF_ONE:
            self._send_away(next(iter(of_source)))
            self._refusals.add(
                why="too many unauthenticated connections of one address",
                last_from=connection.source,
            )
        elif self._count >= self._most_unknown:
            self._send_one_away("too many unauthenticated connections")
        self._inside[connection.number] = connection
        self._unknown.setdefault(connection.source, {})[connection] = None
        self._count += 1
        connection.timer = asyncio.get_running_loop().call_later(
            self._unknown_s, self._send_away, connection
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
        if has and has >= SHARE * (self.limit - len(self._inside)):
            self._refusals.add(
                why="one client has too many connections", last_from=connection.source
            )
            return False
        self._remove_unidentified(connection)
        self._forget(connection)
        connection.who = who
        self._known[who] += 1
        return True

    def leave(self, connection: Connection) -> None:
        """A connection has been closed."""
        self._remove_unidentified(connection)
        self._forget(connection)
        if self._inside.get(connection.number) is connection:
            del self._inside[connection.number]

    def _send_one_away(self, why: str) -> None:
        most = max(self._unknown.values(), key=len)
        connection = next(iter(most))
        self._send_away(connection)
        self._refusals.add(why=why, last_from=connection.source)

    def _send_away(self, connection: Connection) -> None:
        self._remove_unidentified(connection)
        connection.end()

    def _forget(self, connection: Connection) -> None:
        """Stop counting a connection for its identity."""
        if connection.who is None:
            return
        self._known[connection.who] -= 1
        if self._known[connection.who] <= 0:
            del self._known[connection.who]
        connection.who = None

    def _remove_unidentified(self, connection: Connection) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None
        of_source = self._unknown.get(connection.source, {})
        if connection in of_source:
            del of_source[connection]
            self._count -= 1
            if not of_source:
                del self._unknown[connection.source]


class _SeldomWarning(Component):
    """A warning that is logged at once, then at most once in WARNED_EVERY_S."""

    message: str
    counted: str
    """The name of the log field with the number of occurrences."""

    def __post_init__(self) -> None:
        self._count = 0
        self._logged_at = float("-inf")

    def add(self, **about: str) -> None:
        """Count an occurrence of it, and log it unless it was logged a short time ago."""
        self._count += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= WARNED_EVERY_S:
            log.warning(self.message, extra={**about, self.counted: self._count})
            self._logged_at, self._count = now, 0


class Connection(asyncio.BaseProtocol):
    """A client's connection, which counts until it has left.

    It is the protocol of its transport only until its TLS is made.

    Attributes:
        source: the part of the client's address that it is counted by.
        number: the descriptor that it was accepted with.
        who: the identity that it belongs to; None before that is known.
        timer: ends it while it is unidentified.
        on_end: called when the limiter ends it; None if a reader notices that.
    """

    __slots__ = ("_limiter", "_make", "number", "on_end", "sock", "source", "timer", "who")

    def __init__(self, sock: socket.socket, source: str, limiter: ConnectionLimiter) -> None:
        self.sock = sock
        self.source = source
        self.number = sock.fileno()
        self.who: str | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.on_end: Callable[[], object] | None = None
        self._limiter = limiter
        self._make: MakeProtocol | None = None

    async def serve(self, make: MakeProtocol, tls: ssl.SSLContext | None) -> None:
        """Make its TLS, then its protocol. Raises OSError if the handshake fails."""
        self._make = make
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self,
            self.sock,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the transport to the protocol, which is made now."""
        assert self._make is not None, "it is served"
        protocol = self._make(self.leave)
        self._make = None
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)

    def end(self) -> None:
        """Make its reader see the end."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.on_end is not None:
            self.on_end()

    def leave(self) -> None:
        """Stop counting it: its descriptor is closed."""
        self._limiter.leave(self)

    def close(self) -> None:
        """Close the socket and leave."""
        self.leave()
        self.sock.close()


TlsInUse = Callable[[], ssl.SSLContext]
"""Returns the context for the next connection."""
MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the protocol of a connection. The protocol calls the argument once its connection is lost,
or once the connection of the protocol that has replaced it is."""


def peer_of(transport: asyncio.BaseTransport | None) -> tuple[str, int] | None:
    """The address and port of a client; None on a Unix socket, or once it has disconnected.

    An IPv4 client of a socket of both families has its IPv4 address.
    """
    address = transport.get_extra_info("peername") if transport is not None else None
    if not isinstance(address, tuple):
        return None
    return address[0].removeprefix(_MAPPED), address[1]


_MAPPED = "::ffff:"
"""Prefix of an IPv4 address on a socket of both families, by the kernel."""


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
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors after which accepting pauses."""


class Listener(Component):
    """Serves one listening socket. Make it inside a running event loop."""

    sock: socket.socket
    """Closed together with this listener."""
    limiter: ConnectionLimiter
    make: MakeProtocol
    """Called once a connection's TLS is made."""
    tls: TlsInUse | None = None
    """Called when a handshake begins; None: plain connections."""

    def __post_init__(self) -> None:
        if self.tls is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER  # in the whole process
        self.sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._silent: set[Connection] = set()
        """Connections that have sent nothing yet."""
        self._waiting: dict[Connection, None] = {}
        """Connections whose TLS handshake has not begun, the oldest first."""
        self._handshakes: dict[Connection, float] = {}
        """Connections in their handshake -> when it began, the oldest first."""
        self._next: asyncio.TimerHandle | None = None
        """Begins further handshakes."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._pauses = _SeldomWarning("connections have to wait", "pauses")

    def start(self) -> None:
        """Accept connections from now on."""
        self._retry = None
        self._loop.add_reader(self.sock, self._accept)

    def close(self) -> None:
        """Stop listening; end connections whose protocol has not been made."""
        if self.sock.fileno() == -1:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self.sock)
        self.sock.close()
        if self._next is not None:
            self._next.cancel()
        for connection in self._silent:
            self._loop.remove_reader(connection.sock)
        for connection in (*self._silent, *self._waiting):
            connection.close()
        self._silent.clear()
        self._waiting.clear()
        for task in self._connecting:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            if self._has_no_room():
                return
            try:
                sock, address = self.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    log.warning("a connection can't be accepted", extra={"why": str(error)})
                    return
                self._pause(error)
                return
            sock.setblocking(False)
            connection = Connection(sock, source_of(address), self.limiter)
            if not self.limiter.enter(connection):
                connection.close()
                return  # those that are being closed leave when the loop sees their end
            self._silent.add(connection)
            self._loop.add_reader(sock, self._first_byte, connection)

    def _has_no_room(self) -> bool:
        """Whether the next connection has to stay in the kernel's backlog.

        Unidentified connections being closed leave when the loop sees their end, which is not
        before this round of accepting is over.
        """
        if not self.limiter.is_full():
            return False
        requested = select.poll()
        requested.register(self.sock, select.POLLIN)
        return not requested.poll(0) or self.limiter.close_unidentified()

    def _pause(self, error: OSError) -> None:
        self._loop.remove_reader(self.sock)
        self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
        self._pauses.add(why=str(error))

    def _first_byte(self, connection: Connection) -> None:
        try:
            found = connection.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            found = b""
        self._loop.remove_reader(connection.sock)
        self._silent.discard(connection)
        if not found:
            connection.close()
            return
        if self.tls is None:
            self._begin(connection)
            return
        self._waiting[connection] = None
        connection.on_end = partial(self._loop.call_soon, self._give_up, connection)
        self._begin_soon(0.0)

    def _give_up(self, connection: Connection) -> None:
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

    def _begin(self, connection: Connection) -> None:
        connection.on_end = None
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: Connection) -> None:
        try:
            await connection.serve(self.make, self.tls() if self.tls is not None else None)
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
