"""The part of logind that a node agent needs: delaying a shutdown, and being notified of it."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.base.host.errors import DBusError
from kubeletpy.base.host.files import write_whole

if TYPE_CHECKING:
    from dbus_fast import Message

    from kubeletpy.base.host.dbus import Bus

log = logging.getLogger(__name__)

LOGIN1 = "org.freedesktop.login1"
PATH = "/org/freedesktop/login1"
MANAGER = "org.freedesktop.login1.Manager"
DBUS = "org.freedesktop.DBus"
MATCHES = (
    f"type='signal',sender='{LOGIN1}',interface='{MANAGER}',"
    f"member='PrepareForShutdown',path='{PATH}'",
    f"type='signal',sender='{DBUS}',interface='{DBUS}',member='NameOwnerChanged',arg0='{LOGIN1}'",
)
DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
SIGHUP = 1


class NoLogind(Exception):
    """The machine has no logind."""


class _Signals:
    """Identifies logind on the bus, and its own signals.

    Must never accept a shutdown signal from anything else: any client of the bus can send a signal
    to one connection, whatever that connection subscribed to.
    """

    def __init__(self) -> None:
        self.owner: str | None = None
        """The connection that owns logind's name; empty while none does, None: not known."""
        self._warned = False

    def is_shutdown_signal(self, message: Message) -> bool:
        """Whether this is logind's shutdown signal; keeps track of who logind is."""
        kind = (message.interface, message.member, message.signature)
        if kind == (DBUS, "NameOwnerChanged", "sss") and message.sender == DBUS:
            if message.body[0] == LOGIN1:
                self.owner = str(message.body[2])
            return False
        if kind != (MANAGER, "PrepareForShutdown", "b"):
            return False
        if self.owner and message.sender == self.owner:
            return True
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "ignoring a shutdown signal that logind did not send",
            extra={"sender": message.sender, "logind": self.owner},
        )
        self._warned = True
        return False


class Logind:
    """The machine's logind over the system bus."""

    def __init__(self, bus: Bus, drop_in: Path = DROP_IN) -> None:
        self._bus = bus
        self._drop_in = drop_in

    @classmethod
    async def connect(cls, address: str | None = None, drop_in: Path = DROP_IN) -> Logind:
        """Connect over the bus at an address, or the system's (DBUS_SYSTEM_BUS_ADDRESS).

        Raises:
            NoLogind: there is no system bus.
            OSError, DBusError: it does not work now.
        """
        from kubeletpy.base.host.dbus import DAEMON, Bus

        try:
            signals = _Signals()
            bus = await Bus.connect(address, signals.is_shutdown_signal)
        except FileNotFoundError as error:
            raise NoLogind(f"there is no system bus: {error}") from error
        try:
            for match in MATCHES:
                await bus.call(*DAEMON, "AddMatch", "s", match)
            try:
                owner = str((await bus.call(*DAEMON, "GetNameOwner", "s", LOGIN1)).body[0])
            except DBusError:  # not started yet: the first call does that
                owner = ""
        except BaseException:
            await bus.close()
            raise
        if signals.owner is None:  # otherwise a change since then has set it
            signals.owner = owner
        return cls(bus, drop_in)

    async def inhibit(self) -> int:
        """Take a delay lock on shutdown. Raises DBusError."""
        why = "Kubelet needs time to handle node shutdown"
        reply = await self._bus.call(
            LOGIN1, PATH, MANAGER, "Inhibit", "ssss", "shutdown", "kubelet", why, "delay"
        )
        if len(reply.unix_fds) != 1:
            for each in reply.unix_fds:
                os.close(each)
            raise DBusError("logind granted no lock")
        return int(reply.unix_fds[0])

    async def max_delay(self) -> float:
        """Seconds for which logind lets a delay lock hold a shutdown up. Raises DBusError."""
        return float(await self._property("InhibitDelayMaxUSec")) / 1e6

    async def shutting_down(self) -> bool:
        """Whether logind prepares for a shutdown. Raises DBusError."""
        return bool(await self._property("PreparingForShutdown"))

    async def _property(self, name: str) -> Any:
        properties = (LOGIN1, PATH, "org.freedesktop.DBus.Properties")
        reply = await self._bus.call(*properties, "Get", "ss", MANAGER, name)
        if reply.signature != "v":
            raise DBusError(f"logind does not report {name}")
        return reply.body[0].value

    async def raise_max_delay(self, seconds: int) -> None:
        """Write a drop-in file and have logind reload its configuration."""
        await asyncio.to_thread(self._write_drop_in, seconds)
        systemd = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
        await self._bus.call(
            *systemd,
            "org.freedesktop.systemd1.Manager",
            "KillUnit",
            "ssi",
            "systemd-logind.service",
            "all",
            SIGHUP,
        )

    def _write_drop_in(self, seconds: int) -> None:
        self._drop_in.parent.mkdir(parents=True, exist_ok=True)
        text = f"# Written by the node agent.\n[Login]\nInhibitDelayMaxSec={seconds}\n"
        # systemd may read it at any moment, and takes half a number for a number
        write_whole(self._drop_in, text, mode=0o644)

    async def next_shutdown(self) -> bool:
        """Wait for logind's next signal about a shutdown; True: it is coming."""
        return bool((await self._bus.receive()).body[0])

    async def close(self) -> None:
        """Disconnect from the bus; the descriptors of locks stay open."""
        await self._bus.close()
