"""How many connections a port has, by what is known of who is behind them.

Whoever has shown no credentials is a stranger: strangers are few, stay for a short time, and when
there are too many, the oldest of the address with the most of them has to go. So clients that open
connections and say nothing can't keep others out; nor can one client that may come in take them
all: an identity has at most SHARE times as many as are still free. Must never count by anything but
descriptors: a connection counts until its socket is closed, also while TLS is not yet agreed on.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
import socket
from collections import Counter
from typing import Any

STRANGER_S = 20.0
"""How long a connection may be without a request of somebody known, TLS included."""
STRANGERS = 512
SHARE = 3
"""One identity alone gets three quarters of a port, two get three sevenths each, and so on."""
SPARE = 3
"""A connection may take so many descriptors (one more to a runtime or node, one of a file)."""


def most_connections(wanted: int) -> int:
    """``wanted``, or what the limit of descriptors of this process leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(2, min(wanted, soft // SPARE))


class Door:
    """The connections of one port, ``limit`` at most; up to half of them, STRANGERS, strangers."""

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
        """Whether the next connection has to wait until a stranger, sent away now, has left.

        Each call sends one away, so nobody waits for longer than there are strangers.
        """
        if not self._strangers:
            return False
        self._send_one_away()
        return True

    def enter(self, guest: Guest) -> bool:
        """Let a connection in; False: there is no room, it must be closed."""
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
        """``who``, an identity that may come in, is behind a connection.

        False: they have their share of the connections, this one must be closed.
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
        """A connection is closed."""
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
        """Count a connection no longer as one of its identity."""
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
        """Have whoever reads it see the end."""
        try:
            self.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close and leave."""
        self.door.leave(self)
        super().close()


class Entrance(socket.socket):
    """A listening socket with a door."""

    door: Door

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            BlockingIOError: there is no room yet; the connection stays in the kernel's queue.
            ConnectionAbortedError: there is no room, it is closed.
        """
        if self.door.is_full() and self._somebody_waits() and self.door.makes_room():
            # Strangers that were sent away leave when the loop sees the end of their connections,
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
        """Whether a connection is in the kernel's queue: an event loop also asks in vain."""
        asked = select.poll()
        asked.register(self, select.POLLIN)
        return bool(asked.poll(0))


def guarded(listening: socket.socket, limit: int) -> Entrance:
    """The same listening socket with a door; the one given is still its owner's to close."""
    made = Entrance(
        listening.family, listening.type, listening.proto, fileno=os.dup(listening.fileno())
    )
    made.setblocking(False)
    made.door = Door(limit)
    return made


def fileno_of(transport: asyncio.BaseTransport | None) -> int:
    """The descriptor behind a transport; -1 for none."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    return int(sock.fileno()) if sock is not None else -1
