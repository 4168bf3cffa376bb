"""A system bus of our own with a logind on it, for tests of node shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from kubeletpy.node.shutdown.logind import LOGIN1, MANAGER, PATH

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/>
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
  </policy>
</busconfig>
"""


class FakeLogind:
    """Use it as a context manager; it runs on a thread of its own."""

    def __init__(self, directory: Path, delay_s: int = 5) -> None:
        self.socket = directory / "bus"
        self.address = f"unix:path={self.socket}"
        self.delay_us = delay_s * 1_000_000
        self.raised_to: list[list[Any]] = []
        self.slow = 0.0
        """Seconds that a lock takes to come."""
        self.passed = threading.Event()
        self._directory = directory
        self._locks: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._daemon: subprocess.Popen[bytes] | None = None
        self._bus: MessageBus | None = None
        self._before: MessageBus | None = None

    def __enter__(self) -> FakeLogind:
        file = self._directory / "bus.conf"
        file.write_text(CONFIG.format(socket=self.socket))
        command = ["dbus-daemon", f"--config-file={file}", "--nofork", "--print-address"]
        self._daemon = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._daemon.stdout is not None
        assert self._daemon.stdout.readline(), "the bus did not start"  # it listens, then prints
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.communicate()
        for fd in self._locks:
            os.close(fd)

    def announce(self, active: bool) -> None:
        """PrepareForShutdown, from logind itself."""
        self._run(self._announce(active))

    async def _announce(self, active: bool) -> None:
        assert self._bus is not None
        await self._bus.send(Message.new_signal(PATH, MANAGER, "PrepareForShutdown", "b", [active]))

    def forge(self, *destination: str) -> None:
        """PrepareForShutdown from somebody else, to all or to one connection (--dest=NAME)."""
        signal = [PATH, f"{MANAGER}.PrepareForShutdown", "boolean:true"]
        command = ["dbus-send", f"--bus={self.address}", "--type=signal", *destination, *signal]
        subprocess.run(command, check=True)

    async def _rename(self) -> None:
        assert self._bus is not None
        await self._bus.release_name(LOGIN1)
        again = await MessageBus(self.address, negotiate_unix_fd=True).connect()
        again.add_message_handler(self._answer)
        await again.request_name(LOGIN1)
        self._before, self._bus = self._bus, again

    def restart(self) -> None:
        """Another connection has logind's name, as after its restart."""
        self._run(self._rename())

    @property
    def locks_held(self) -> int:
        """Number of delay locks that are held now."""
        held = 0
        for fd in self._locks:
            try:
                held += os.read(fd, 1) != b""
            except BlockingIOError:
                held += 1
        return held

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self) -> None:
        bus = MessageBus(self.address, negotiate_unix_fd=True)
        self._bus = await bus.connect()
        self._bus.add_message_handler(self._answer)
        for name in (LOGIN1, "org.freedesktop.systemd1"):
            await self._bus.request_name(name)

    async def _stop(self) -> None:
        for bus in (self._bus, self._before):
            if bus is not None:
                bus.disconnect()
                with contextlib.suppress(EOFError, OSError):  # a test may have ended the daemon
                    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    def _answer(self, call: Message) -> Message | bool | None:
        if call.message_type is not MessageType.METHOD_CALL:
            return None
        if call.member == "Inhibit":
            assert (call.body[0], call.body[3]) == ("shutdown", "delay")
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            self._locks.append(reading)
            self._loop.call_later(self.slow, self._pass, call, writing)
            return True
        if call.member == "Get" and call.body[1] == "InhibitDelayMaxUSec":
            return Message.new_method_return(call, "v", [Variant("t", self.delay_us)])
        if call.member == "Get":
            return Message.new_method_return(call, "v", [Variant("b", False)])
        if call.member == "KillUnit":
            self.raised_to.append(call.body)
            self.delay_us = 60_000_000
        return Message.new_method_return(call)

    def _pass(self, call: Message, lock: int) -> None:
        assert self._bus is not None
        sent = self._bus.send(Message.new_method_return(call, "h", [0], unix_fds=[lock]))
        sent.add_done_callback(lambda _: self._passed(lock))

    def _passed(self, lock: int) -> None:
        os.close(lock)
        self.passed.set()
