"""A D-Bus connection: calls, signals, passed files; a library speaks the protocol.

Import this where it is used: few nodes are configured to talk to a bus. Must never keep files that
no call waits for (one may be a lock on the machine's shutdown), nor more signals than its queue
holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusFastError

from kubeletpy.base.host.errors import DBusError
from kubeletpy.base.structs import Component

CALL_TIMEOUT_S = 10.0
MAX_SIGNALS = 64
DAEMON = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_OVER = "the bus closed the connection"

Desired = Callable[[Message], bool]


def _all(_signal: Message) -> bool:
    return True


class Bus(Component):
    """A connection to a bus. :meth:`connect` makes one."""

    bus: MessageBus
    desired: Desired = _all
    """Which signals are kept, so that untrusted peers can't fill the queue."""

    def __post_init__(self) -> None:
        self._files: dict[int, list[int]] = {}
        """The files in the replies of calls in progress, by serial number."""
        self._signals: asyncio.Queue[Message | None] = asyncio.Queue(MAX_SIGNALS)
        self._following: asyncio.Task[None]
        self.bus.add_message_handler(self._received)

    @classmethod
    async def connect(cls, address: str | None = None, desired: Desired = _all) -> Bus:
        """Connect to the bus at an address, or to the system's.

        Raises:
            OSError: nothing is there; TimeoutError: nothing answers.
            DBusError: it is not a bus, it refuses us, or the address is invalid.
        """
        try:
            made = cls(MessageBus(address, BusType.SYSTEM, negotiate_unix_fd=True), desired)
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await made.bus.connect()
        except (DBusFastError, EOFError, ValueError) as error:
            raise DBusError(str(error) or _OVER) from error
        made._following = asyncio.create_task(made._until_over(), name="dbus")
        return made

    @property
    def over(self) -> bool:
        """Whether the connection has ended."""
        return self._following.done()

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        *arguments: Any,
    ) -> Message:
        """Call a method; the reply, whose files are the caller's.

        Raises:
            DBusError, OSError, TimeoutError.
        """
        if self.over:
            raise DBusError(_OVER)
        message = Message(
            destination,
            path,
            interface,
            member,
            signature=signature,
            body=list(arguments),
            serial=self.bus.next_serial(),
        )
        self._files[message.serial] = []
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await self.bus.call(message)
            if answer.message_type is MessageType.ERROR:
                text = answer.body[0] if answer.body else ""
                name = answer.error_name or ""
                raise DBusError(f"{interface}.{member}: {name}: {text}", name)
        except BaseException as error:
            _close(self._files[message.serial])
            if isinstance(error, DBusFastError | EOFError):
                raise DBusError(str(error) or _OVER) from error
            raise
        finally:
            del self._files[message.serial]
        return answer

    async def receive(self) -> Message:
        """The next signal. Raises DBusError: the connection is over."""
        message = await self._signals.get()
        if message is None:
            raise DBusError(_OVER)
        return message

    async def close(self) -> None:
        """End the connection; calls that wait fail."""
        self.bus.disconnect()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._following

    def _received(self, message: Message) -> None:
        awaited = self._files.get(message.reply_serial)
        if message.message_type is MessageType.METHOD_RETURN and awaited is not None:
            for descriptor in message.unix_fds:
                os.set_inheritable(descriptor, False)
            awaited += message.unix_fds
            return
        _close(message.unix_fds)
        if message.message_type is not MessageType.SIGNAL or not self.desired(message):
            return
        if not self._signals.full():
            self._signals.put_nowait(message)

    async def _until_over(self) -> None:
        # whatever ended it: callers and receivers learn that it is over
        with contextlib.suppress(Exception):
            await self.bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        if self._signals.full():
            self._signals.get_nowait()
        self._signals.put_nowait(None)


def _close(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)
