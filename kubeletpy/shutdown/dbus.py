"""A connection to a D-Bus: calls, replies, signals, passed files.

Source: D-Bus specification 0.43 (EXTERNAL authentication, unix file descriptors). Must never keep
files that nobody asked for, nor more messages than its queue holds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from typing import Any

from kubeletpy.shutdown.dbus_message import CALL, ERROR, RETURN, DBusError, Message, decode, encode

MAX_FILES = 4
CALL_TIMEOUT_S = 10.0


class Bus:
    """A connection to a bus. One task reads; what is no reply goes to :meth:`receive`."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._serial = 0
        self._data = b""
        self._files: deque[int] = deque()
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._others: asyncio.Queue[Message | None] = asyncio.Queue(64)
        self._reading: asyncio.Task[None] | None = None
        self.name = ""

    @classmethod
    async def connect(cls, path: str) -> Bus:
        """Connect and introduce ourselves. Raises OSError, DBusError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        bus = cls(connection)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(connection, path)
                await bus._authenticate()
                bus._reading = asyncio.get_running_loop().create_task(bus._read())
                daemon = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
                hello = await bus.call(*daemon, "Hello")
        except BaseException:
            await bus.close()
            raise
        bus.name = str(hello.body[0]) if hello.body else ""
        return bus

    async def _authenticate(self) -> None:
        loop = asyncio.get_running_loop()
        uid = str(os.geteuid()).encode().hex().encode()
        for say, expect in ((b"\0AUTH EXTERNAL " + uid, b"OK"), (b"NEGOTIATE_UNIX_FD", b"AGREE")):
            await loop.sock_sendall(self._socket, say + b"\r\n")
            line = b""
            while not line.endswith(b"\r\n") and len(line) < 512:
                got = await loop.sock_recv(self._socket, 512 - len(line))
                if not got:
                    raise DBusError("the bus closed the connection while we introduced ourselves")
                line += got
            if not line.startswith(expect):
                raise DBusError(f"the bus refused us: {line.decode(errors='replace').strip()}")
        await loop.sock_sendall(self._socket, b"BEGIN\r\n")

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        *arguments: Any,
    ) -> Message:
        """Call a method; the reply. Raises DBusError, OSError, TimeoutError."""
        message = Message(
            CALL,
            path=path,
            interface=interface,
            member=member,
            destination=destination,
            signature=signature,
            body=arguments,
        )
        self._serial += 1
        message.serial = serial = self._serial
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[serial] = reply
        try:
            await self.send(message)
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await reply
        finally:
            self._replies.pop(serial, None)
        if answer.kind == ERROR:
            text = answer.body[0] if answer.body else ""
            raise DBusError(f"{interface}.{member}: {answer.error}: {text}")
        return answer

    async def send(self, message: Message) -> None:
        """Send a message; gives it a serial number if it has none."""
        if not message.serial:
            self._serial += 1
            message.serial = self._serial
        data = encode(message)
        if message.files:
            sent = socket.send_fds(self._socket, [data], message.files)
            data = data[sent:]
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def receive(self) -> Message:
        """The next message that is no reply to us. Raises DBusError: the connection is over."""
        message = await self._others.get()
        if message is None:
            raise DBusError("the bus closed the connection")
        return message

    async def close(self) -> None:
        """End the connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        for fd in self._files:
            os.close(fd)
        self._files.clear()
        self._socket.close()

    async def _read(self) -> None:
        try:
            while True:
                while (found := decode(self._data)) is not None:
                    message, size = found
                    self._data = self._data[size:]
                    wanted = min(message.files_count, len(self._files))
                    message.files = [self._files.popleft() for _ in range(wanted)]
                    self._deliver(message)
                await self._more()
        except (OSError, DBusError, struct.error) as error:
            self._fail(DBusError(f"the connection to the bus is over: {error}"))

    def _deliver(self, message: Message) -> None:
        if message.kind in (RETURN, ERROR):
            reply = self._replies.get(message.reply_to)
            if reply is not None and not reply.done():
                reply.set_result(message)
                return
        elif not self._others.full():
            self._others.put_nowait(message)
            return
        for fd in message.files:
            os.close(fd)

    def _fail(self, error: DBusError) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)
        if self._others.full():
            self._others.get_nowait()
        self._others.put_nowait(None)

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data, files, _, _ = socket.recv_fds(self._socket, 16384, MAX_FILES)
                break
            except BlockingIOError:
                readable = loop.create_future()
                loop.add_reader(self._socket, _wake, readable)
                try:
                    await readable
                finally:
                    loop.remove_reader(self._socket)
        self._files.extend(files)
        while len(self._files) > MAX_FILES:
            os.close(self._files.popleft())
        if not data:
            raise DBusError("closed by the bus")
        self._data += data


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
