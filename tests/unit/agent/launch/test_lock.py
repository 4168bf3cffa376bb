"""--lock-file: one agent at a time, which exits when another opens the file."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy import config
from kubeletpy.agent.launch import LaunchError, start
from kubeletpy.agent.launch.start import ServiceManager
from kubeletpy.config import ConfigError, NodeFlags


class Running:
    """An agent that runs until it is canceled."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), False

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def test_the_agent_waits_while_another_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start, "RETRY_S", 0.01)
    path, agent = tmp_path / "lock", Running()
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        task = asyncio.ensure_future(start.run_locked(NodeFlags(lock_file=str(path)), agent.run()))
        await asyncio.sleep(0)
        assert "another process holds it" in caplog.text
        assert not agent.began.is_set()
    await asyncio.wait_for(agent.began.wait(), 5)
    with path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.ended


async def test_a_waiting_agent_can_be_stopped(tmp_path: Path) -> None:
    path, agent = tmp_path / "lock", Running()
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        task = asyncio.ensure_future(start.run_locked(NodeFlags(lock_file=str(path)), agent.run()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not agent.began.is_set()


async def test_the_agent_exits_when_another_opens_the_lock(tmp_path: Path) -> None:
    path, agent = tmp_path / "lock", Running()
    flags = NodeFlags(lock_file=str(path), exit_on_lock_contention=True)
    task = asyncio.ensure_future(start.run_locked(flags, agent.run()))
    await agent.began.wait()
    path.open().close()
    await asyncio.wait_for(task, 5)
    assert agent.ended


async def test_an_error_of_the_agent_is_raised(tmp_path: Path) -> None:
    async def agent() -> None:
        raise LaunchError("no runtime")

    with pytest.raises(LaunchError, match="no runtime"):
        await start.run_locked(NodeFlags(lock_file=str(tmp_path / "lock")), agent())


async def test_a_file_that_can_not_be_made(tmp_path: Path) -> None:
    flags = NodeFlags(lock_file=str(tmp_path / "none" / "lock"))
    with pytest.raises(LaunchError, match=r"--lock-file .*none/lock"):
        await start.run_locked(flags, Running().run())


def test_contention_needs_a_lock() -> None:
    with pytest.raises(ConfigError, match="needs --lock-file"):
        config.parse_flags(["--exit-on-lock-contention"])


# READY and WATCHDOG notifications, received by a socket of the test.


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def test_ready(heard: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": heard.getsockname(), "PATH": "/bin"}
    manager = ServiceManager(environment)
    assert environment == {"PATH": "/bin"}, "who is started by us does not speak for us"
    manager.notify("READY=1")
    assert heard.recv(100) == b"READY=1"
    assert manager.watchdog_s == 0


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0kubeletpy-test-{os.getpid()}")
        name = f"@kubeletpy-test-{os.getpid()}"
        ServiceManager({"NOTIFY_SOCKET": name}).notify("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_a_missing_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({}).notify("READY=1")
    assert caplog.text == ""
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")
    assert "could not be notified" in caplog.text


@pytest.mark.parametrize(
    ("environment", "period"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
    ],
)
def test_the_watchdogs_period(environment: dict[str, str], period: float) -> None:
    assert ServiceManager(environment).watchdog_s == period


@pytest.mark.parametrize("text", ["1000000", "soon"])
def test_an_invalid_period(text: str) -> None:
    with pytest.raises(LaunchError, match="WATCHDOG_USEC"):
        ServiceManager({"WATCHDOG_USEC": text})


async def test_the_watchdog_is_notified_while_healthy(heard: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    problem = ""
    manager = ServiceManager({"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "1000001"})
    manager.watchdog_s = 0.02
    task = asyncio.ensure_future(manager.keep_alive({"syncloop": lambda: problem}))
    try:
        async with asyncio.timeout(5):
            assert await loop.sock_recv(heard, 100) == b"WATCHDOG=1"
            assert await loop.sock_recv(heard, 100) == b"WATCHDOG=1"
            problem = "it hangs"
            await asyncio.sleep(0.1)
        while True:
            try:
                heard.recv(100)
            except BlockingIOError:
                break
        await asyncio.sleep(0.1)
        with pytest.raises(BlockingIOError):
            heard.recv(100)
    finally:
        task.cancel()
