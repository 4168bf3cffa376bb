"""How many connections a port has, by what is known of who is behind them.

Whoever has shown no credentials is a stranger: strangers are few, stay for a short time, and when
there are too many, the oldest of the address with the most of them has to go. So clients that open
connections and say nothing can't keep others out. Must never count by anything but descriptors:
a connection counts until its socket is closed, also while TLS is not yet agreed on.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from typing import Any

STRANGER_S = 20.0
"""How long a connection may be without a request of somebody known, TLS included."""
STRANGERS = 512
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

    def enter(self, guest: Guest) -> bool:
        """Let a connection in; False: there is no room, it must be closed."""
        if len(self._inside) >= self._limit or self._count >= self._most_strangers:
            self._send_one_away()
        if len(self._inside) >= self._limit:
            return False
        self._inside[guest.fileno()] = guest
        self._strangers.setdefault(guest.source, {})[guest] = None
        self._count += 1
        guest.timer = asyncio.get_running_loop().call_later(STRANGER_S, self._send_away, guest)
        return True

    def know(self, transport: asyncio.BaseTransport | None) -> None:
        """Somebody who may come in is behind a connection."""
        guest = self._inside.get(fileno_of(transport))
        if guest is not None:
            self._no_stranger(guest)

    def leave(self, guest: Guest) -> None:
        """A connection is closed."""
        self._no_stranger(guest)
        if self._inside.get(guest.fileno()) is guest:
            del self._inside[guest.fileno()]

    def _send_one_away(self) -> None:
        if self._strangers:
            most = max(self._strangers.values(), key=len)
            self._send_away(next(iter(most)))

    def _send_away(self, guest: Guest) -> None:
        self._no_stranger(guest)
        guest.end()

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
        """The next connection. Raises ConnectionAbortedError when there is no room for it."""
        number, address = self._accept()  # type: ignore[attr-defined]
        guest = Guest(self.family, self.type, self.proto, fileno=number)
        guest.door = self.door
        guest.source = str(address[0])
        if not self.door.enter(guest):
            guest.close()
            raise ConnectionAbortedError("too many connections")
        return guest, address


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
