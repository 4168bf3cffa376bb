"""Limits the connections of a port, by what is known about the clients behind them.

A client without credentials is a stranger: strangers are few, stay only briefly, and when there are
too many, the oldest connection of the address with the most is closed. So clients that open
connections and send nothing can't keep others out; nor can one authorized client take all
connections: an identity has at most SHARE times as many as are still free. Must never count by
anything but descriptors: a connection counts until its socket is closed, also during the TLS
handshake.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
import socket
from collections import Counter
from typing import Any

from kubeletpy.wire.accepting import ListeningSocket

STRANGER_S = 20.0
"""How long a connection may go without an authenticated request, TLS handshake included."""
STRANGERS = 512
SHARE = 3
"""A single identity gets three quarters of a port, two get three sevenths each, and so on."""
SPARE = 3
"""Descriptors that a connection may take (one more to a runtime or node, one of a file)."""


def most_connections(wanted: int) -> int:
    """``wanted``, or as many as this process's descriptor limit allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(2, min(wanted, soft // SPARE))


class Door:
    """The connections of one port, at most ``limit``; strangers up to half of them, STRANGERS."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most_strangers = max(2, min(STRANGERS, limit // 2))
        self._inside: dict[int, Guest] = {}
        self._strangers: dict[str, dict[Guest, None]] = {}
        self._count = 0
        self._known: Counter[str] = Counter()

    def is_full(self) -> bool:
        """Whether there is no room for another connection."""
        return len(self._inside) >= self._limit

    def makes_room(self) -> bool:
        """Whether the next connection must wait for a stranger, now being closed, to leave.

        Each call closes one, so a connection waits at most while there are strangers.
        """
        if not self._strangers:
            return False
        self._send_one_away()
        return True

    def enter(self, guest: Guest) -> bool:
        """Admit a connection; False: there is no room, and it must be closed."""
        if self.is_full():
            return False
        if self._count >= self._most_strangers:
            self._send_one_away()
        self._inside[guest.fileno()] = guest
        self._strangers.setdefault(guest.source, {})[guest] = None
        self._count += 1
        guest.timer = asyncio.get_running_loop().call_later(STRANGER_S, self._send_away, guest)
        return True

    def know(self, transport: asyncio.BaseTransport | None, who: str) -> bool:
        """A connection belongs to ``who``, an authorized identity.

        False: the identity has its share of connections, and this one must be closed.
        """
        guest = self._inside.get(fileno_of(transport))
        if guest is None or guest.who == who:
            return True
        has = self._known[who]
        if has and has >= SHARE * (self._limit - len(self._inside)):
            return False
        self._no_stranger(guest)
        self._forget(guest)
        guest.who = who
        self._known[who] += 1
        return True

    def leave(self, guest: Guest) -> None:
        """A connection has been closed."""
        self._no_stranger(guest)
        self._forget(guest)
        if self._inside.get(guest.fileno()) is guest:
            del self._inside[guest.fileno()]

    def _send_one_away(self) -> None:
        most = max(self._strangers.values(), key=len)
        self._send_away(next(iter(most)))

    def _send_away(self, guest: Guest) -> None:
        self._no_stranger(guest)
        guest.end()

    def _forget(self, guest: Guest) -> None:
        """Stop counting a connection for its identity."""
        if guest.who is None:
            return
        self._known[guest.who] -= 1
        if self._known[guest.who] <= 0:
            del self._known[guest.who]
        guest.who = None

    def _no_stranger(self, guest: Guest) -> None:
        if guest.timer is not None:
            guest.timer.cancel()
            guest.timer = None
        of_source = self._strangers.get(guest.source, {})
        if guest in of_source:
            del of_source[guest]
            self._count -= 1
            if not of_source:
                del self._strangers[guest.source]


class Guest(socket.socket):
    """A connection that notifies the door when it is closed."""

    door: Door
    source: str = ""
    who: str | None = None
    timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Make its reader see the end."""
        try:
            self.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close and leave."""
        self.door.leave(self)
        super().close()


class Entrance(ListeningSocket):
    """A listening socket with a door."""

    door: Door

    def take(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            BlockingIOError: there is no room yet; the connection stays in the kernel's backlog.
            ConnectionAbortedError: there is no room; it is closed.
        """
        if self.door.is_full() and self._somebody_waits() and self.door.makes_room():
            # Strangers being closed leave when the loop sees the end of their connections,
            # which is not before this round of accepting is over.
            raise BlockingIOError
        number, address = self._accept()  # type: ignore[attr-defined]
        guest = Guest(self.family, self.type, self.proto, fileno=number)
        guest.door = self.door
        guest.source = str(address[0])
        if not self.door.enter(guest):
            guest.close()
            raise ConnectionAbortedError("too many connections")
        return guest, address

    def _somebody_waits(self) -> bool:
        """Whether a connection is in the kernel's backlog: the event loop also asks in vain."""
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


def fileno_of(transport: asyncio.BaseTransport | None) -> int:
    """The descriptor behind a transport; -1: none."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    return int(sock.fileno()) if sock is not None else -1
