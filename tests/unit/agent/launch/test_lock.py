"""--lock-file: one agent at a time, which exits when another opens the file."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

import pytest

from kubeletpy import config
from kubeletpy.agent.launch import LaunchError, start
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
