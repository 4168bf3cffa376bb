"""Limits the connections of a port, by what is known about the clients behind them.

Clients without credentials are unidentified: they are few and stay only briefly. When there are
too many, of one address or of all, the oldest connection of the address with the most is closed.
So clients that open connections and send nothing can't keep others out. Nor can one authorized
client take all connections: an identity has at most SHARE times as many as are still free. Must
never count by anything but descriptors: a connection counts until its socket is closed, also
during the TLS handshake.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import select
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kubeletpy.base.wire.accepting import ListeningSocket

log = logging.getLogger(__name__)

STRANGER_S = 20.0
"""How long a connection may go without an authenticated request, TLS handshake included."""
STRANGERS = 512
"""Connections of a port without an authenticated request yet. One that is silent holds 3 kB, one in
a TLS handshake 55 kB."""
STRANGERS_OF_ONE = 256
"""The same for one address. An API server may have thousands of streams from one address: each is
authenticated by its first request, some milliseconds after it has connected."""
V6_NETWORK = 64
"""Bits of an IPv6 address that count as one source: one host may own all addresses below them."""
REFUSALS_LOGGED_EVERY_S = 60.0
SHARE = 3
"""A single identity gets three quarters of a port, two get three sevenths each, and so on."""
SPARE = 3
"""Descriptors that a connection may take (one more to a runtime or node, one of a file)."""


def most_connections(wanted: int) -> int:
    """``wanted``, or as many as this process's descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(2, min(wanted, soft // SPARE))


class Door:
    """The connections of one port, at most ``limit``, up to ``STRANGERS`` of them unidentified."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most_strangers = max(2, min(STRANGERS, limit // 2))
        self._refusals = _Refusals()
        self._inside: dict[int, Guest] = {}
        self._strangers: dict[str, dict[Guest, None]] = {}
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
        if not self._strangers:
            return False
        self._send_one_away("the port is full")
        return True

    def enter(self, guest: Guest) -> bool:
        """Admit a connection; False: there is no room, and it must be closed."""
        if self.is_full():
            self._refusals.add(guest.source, "the port is full")
            return False
        if len(of_source := self._strangers.get(guest.source, {})) >= STRANGERS_OF_ONE:
            self._send_away(next(iter(of_source)))
            self._refusals.add(guest.source, "too many unauthenticated connections of one address")
        elif self._count >= self._most_strangers:
            self._send_one_away("too many unauthenticated connections")
        self._inside[guest.fileno()] = guest
        self._strangers.setdefault(guest.source, {})[guest] = None
        self._count += 1
        guest.timer = asyncio.get_running_loop().call_later(STRANGER_S, self._send_away, guest)
        return True

    def admit_identity(self, transport: asyncio.BaseTransport | None, who: str) -> bool:
        """A connection belongs to ``who``, an authorized identity.

        False: the identity has its share of connections, and this one must be closed.
        """
        guest = self._inside.get(fileno_of(transport))
        if guest is None or guest.who == who:
            return True
        has = self._known[who]
        if has and has >= SHARE * (self._limit - len(self._inside)):
            self._refusals.add(guest.source, "one client has too many connections")
            return False
        self._remove_unidentified(guest)
        self._forget(guest)
        guest.who = who
        self._known[who] += 1
        return True

    def leave(self, guest: Guest) -> None:
        """A connection has been closed."""
        self._remove_unidentified(guest)
        self._forget(guest)
        if self._inside.get(guest.fileno()) is guest:
            del self._inside[guest.fileno()]

    def _send_one_away(self, why: str) -> None:
        most = max(self._strangers.values(), key=len)
        guest = next(iter(most))
        self._send_away(guest)
        self._refusals.add(guest.source, why)

    def _send_away(self, guest: Guest) -> None:
        self._remove_unidentified(guest)
        guest.end()

    def _forget(self, guest: Guest) -> None:
        """Stop counting a connection for its identity."""
        if guest.who is None:
            return
        self._known[guest.who] -= 1
        if self._known[guest.who] <= 0:
            del self._known[guest.who]
        guest.who = None

    def _remove_unidentified(self, guest: Guest) -> None:
        if guest.timer is not None:
            guest.timer.cancel()
            guest.timer = None
        of_source = self._strangers.get(guest.source, {})
        if guest in of_source:
            del of_source[guest]
            self._count -= 1
            if not of_source:
                del self._strangers[guest.source]


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
"""What the kernel puts before an IPv4 address on a socket of both families."""


class Guest(socket.socket):
    """A connection that notifies the door when it is closed."""

    door: Door
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
        """Close and leave."""
        self.door.leave(self)
        super().close()


class Entrance(ListeningSocket):
    """A listening socket with a door."""

    door: Door

    def accept_next(self) -> tuple[Guest, Any]:
        """The next connection.

        Raises:
            BlockingIOError: there is no room yet, and the connection stays in the kernel's backlog;
                or there will be none, and it is closed. Either ends the loop's round of accepting.
        """
        if self.door.is_full() and self._somebody_waits() and self.door.close_unidentified():
            # Unidentified connections being closed leave when the loop sees their end, which
            # is not before this round of accepting is over.
            raise BlockingIOError
        number, address = self._accept()  # type: ignore[attr-defined]
        guest = Guest(self.family, self.type, self.proto, fileno=number)
        guest.door = self.door
        guest.source = source_of(address)
        if not self.door.enter(guest):
            guest.close()
            # after ConnectionAbortedError, the loop of Python 3.14 goes on in the same round: all
            # that wait would be closed before the unidentified ones being closed have left
            raise BlockingIOError("too many connections")
        return guest, address

    def _somebody_waits(self) -> bool:
        """Whether a connection is in the kernel's backlog: the loop also calls without one."""
        asked = select.poll()
        asked.register(self, select.POLLIN)
        return bool(asked.poll(0))


def guarded(listening: socket.socket, limit: int) -> Entrance:
    """The same listening socket with a door; the original must still be closed by its owner."""
    made = Entrance(
        listening.family, listening.type, listening.proto, fileno=os.dup(listening.fileno())
    )
    made.setblocking(False)
    made.door = Door(limit)
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
