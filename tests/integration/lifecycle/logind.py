"""A system bus of our own with a logind on it, for tests of node shutdown."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from kubeletpy.shutdown.dbus import Bus
from kubeletpy.shutdown.dbus_message import CALL, RETURN, Message
from kubeletpy.shutdown.logind import LOGIN1, MANAGER, PATH
from tools.env.waiting import wait_until

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
        self.delay_us = delay_s * 1_000_000
        self.raised_to: list[str] = []
        self._directory = directory
        self._locks: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._daemon: subprocess.Popen[bytes] | None = None
        self._bus: Bus | None = None
        self._serving: Any = None

    def __enter__(self) -> FakeLogind:
        file = self._directory / "bus.conf"
        file.write_text(CONFIG.format(socket=self.socket))
        self._daemon = subprocess.Popen(["dbus-daemon", f"--config-file={file}", "--nofork"])
        wait_until(self.socket.exists, "the bus")
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
        self._daemon.wait()
        for fd in self._locks:
            os.close(fd)

    def announce(self, active: bool) -> None:
        """PrepareForShutdown, sent by somebody else's D-Bus code."""
        subprocess.run(
            [
                "dbus-send",
                f"--bus=unix:path={self.socket}",
                "--type=signal",
                PATH,
                f"{MANAGER}.PrepareForShutdown",
                f"boolean:{str(active).lower()}",
            ],
            check=True,
        )

    @property
    def locks_held(self) -> int:
        """How many delay locks are held now."""
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
        self._bus = bus = await Bus.connect(str(self.socket))
        daemon = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
        for name in (LOGIN1, "org.freedesktop.systemd1"):
            await bus.call(*daemon, "RequestName", "su", name, 0)
        self._serving = asyncio.ensure_future(self._serve(bus))

    async def _stop(self) -> None:
        self._serving.cancel()
        assert self._bus is not None
        await self._bus.close()

    async def _serve(self, bus: Bus) -> None:
        while True:
            call = await bus.receive()
            if call.kind != CALL:
                continue
            answer = Message(RETURN, reply_to=call.serial, destination=call.sender)
            if call.member == "Inhibit":
                assert (call.body[0], call.body[3]) == ("shutdown", "delay")
                reading, writing = os.pipe()
                os.set_blocking(reading, False)
                self._locks.append(reading)
                answer.signature, answer.body, answer.files = "h", (0,), [writing]
            elif call.member == "Get" and call.body[1] == "InhibitDelayMaxUSec":
                answer.signature, answer.body = "v", (("t", self.delay_us),)
            elif call.member == "Get":
                answer.signature, answer.body = "v", (("b", False),)
            elif call.member == "KillUnit":
                self.raised_to.append(str(call.body))
                self.delay_us = 60_000_000
            await bus.send(answer)
            for fd in answer.files:
                os.close(fd)
