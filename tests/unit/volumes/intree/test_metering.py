"""Servers that hang while their volumes are measured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.intree import base
from kubeletpy.volumes.intree.base import MOST_HANGING, Meters


class Servers:
    """Servers; those whose names start with ``dead`` answer once ``healed`` is set."""

    def __init__(self) -> None:
        self.healed = threading.Event()
        self.requested: list[str] = []

    def measure(self, path: str) -> str:
        self.requested.append(path)
        if path.startswith("dead") and not self.healed.wait(20):
            raise OSError("the test is over")
        return path


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(base, "PATIENCE_S", 0.05)
    made = Servers()
    yield made
    made.healed.set()


async def _measure(meters: Meters, servers: Servers, who: str, path: str) -> str:
    return await meters.measure(who, f"statfs of {path}", partial(servers.measure, path))


async def _refused(meters: Meters, servers: Servers, who: str, path: str) -> OperationFailed:
    with pytest.raises(OperationFailed) as failed:
        await _measure(meters, servers, who, path)
    return failed.value


async def test_a_dead_server_gets_one_request_for_all_its_volumes(servers: Servers) -> None:
    meters = Meters()
    found = await asyncio.gather(
        *(_refused(meters, servers, "dead", f"dead/{number}") for number in range(8)),
        _measure(meters, servers, "live", "live/0"),
    )
    assert sorted(servers.requested) == ["dead/0", "live/0"]  # each has a thread of its own
    assert "no answer within 0.05s" in str(found[0])
    assert all("dead still has not answered" in str(each) for each in found[1:8])
    servers.healed.set()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await _measure(meters, servers, "dead", "dead/9") == "dead/9"
                break
            except OperationFailed:
                await asyncio.sleep(0.01)


async def test_hanging_servers_are_limited_by_threads(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    meters = Meters()
    dead = [f"dead{number}" for number in range(MOST_HANGING)]
    await asyncio.gather(*(_refused(meters, servers, who, who) for who in dead[:-1]))
    assert await _measure(meters, servers, "live", "live/0") == "live/0"
    await _refused(meters, servers, dead[-1], dead[-1])
    for _ in range(2):
        refused = await _refused(meters, servers, "live", "live/1")
    assert refused.outcome is FailureOutcome.TRANSIENT
    assert "16 others do not answer" in str(refused) and "dead0, dead1" in str(refused)
    assert "live/1" not in servers.requested
    notified = [each for each in caplog.records if each.message == "volumes are not measured"]
    assert len(notified) == 1


async def test_an_error_is_an_answer(servers: Servers) -> None:
    def stale() -> str:
        raise TimeoutError(110, "Connection timed out")

    meters = Meters()
    for _ in range(2):
        with pytest.raises(OperationFailed, match="Connection timed out"):
            await meters.measure("soft", "statfs of a", stale)
    assert await _measure(meters, servers, "soft", "a") == "a"
