"""READY and WATCHDOG notifications, received by a socket of the test."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.agent.launch import LaunchError
from kubeletpy.agent.launch.start import ServiceManager


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
