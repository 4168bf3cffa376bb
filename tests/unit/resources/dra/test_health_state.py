"""Health reports over time: silence, returning drivers, restarts, disks that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.health import HEALTHY, UNHEALTHY, UNKNOWN
from kubeletpy.resources.dra.health_state import HealthState
from tests.kit.claims import DriverInProcess, _Calls
from tests.kit.virtual_time import LoopClock, settle
from tests.unit.resources.dra.test_health import A, health_report, key

pytestmark = pytest.mark.virtual_time


class Watched:
    """A driver whose devices are watched."""

    def __init__(self, root: Path) -> None:
        self.driver = DriverInProcess(A)
        self.changes: list[set[str]] = []
        self.state = HealthState(
            root / "dra_health_state",
            LoopClock(),
            lambda devices: self.changes.append({name for _, (_, name) in devices}),
        )
        self.drivers = DraDrivers(
            Metrics().dra, lambda name, *_: _Calls(self.driver), self.state.driver_reported
        )

    async def start(self) -> None:
        await self.drivers.register(self.driver.info())
        await settle()

    def now(self, name: str) -> str:
        report = self.state.reported.get(A, {}).get(key(name))
        return report.now(LoopClock().now())[0] if report is not None else UNKNOWN

    async def close(self) -> None:
        await self.drivers.close()
        await self.state.close()


async def test_a_device_becomes_unknown_when_its_driver_is_silent(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    await node.start()
    node.driver.reports.put_nowait(health_report(d0=HEALTHY, d1=HEALTHY))
    await settle()
    assert node.changes == [{"d0", "d1"}]
    await asyncio.sleep(20)
    node.driver.reports.put_nowait(health_report(d0=HEALTHY))
    await asyncio.sleep(11)
    assert (node.now("d0"), node.now("d1")) == (HEALTHY, UNKNOWN)
    assert node.changes[1:] == [{"d1"}]
    await asyncio.sleep(30)
    assert node.changes[2:] == [{"d0"}]
    await node.close()


async def test_a_driver_that_returns_in_time_changes_nothing(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    await node.start()
    node.driver.reports.put_nowait(health_report(d0=HEALTHY))
    node.driver.reports.put_nowait(None)
    await asyncio.sleep(4)
    assert node.driver.watched == 1
    await asyncio.sleep(2)
    assert node.driver.watched == 2
    node.driver.reports.put_nowait(health_report(d0=HEALTHY))
    await asyncio.sleep(1)
    assert node.changes == [{"d0"}]
    await node.close()


async def test_a_driver_without_health_is_called_once(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    node.driver.tells_health = False
    await node.start()
    await asyncio.sleep(600)
    assert node.driver.watched == 1
    await node.close()


async def test_a_driver_that_talks_without_end_is_read_slowly(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    await node.start()
    for index in range(1000):
        node.driver.reports.put_nowait(health_report(d0=(HEALTHY, UNHEALTHY)[index % 2]))
    await asyncio.sleep(1)
    assert len(node.changes) <= 12
    await node.close()


async def test_reports_outlive_the_agent(tmp_path: Path) -> None:
    node = Watched(tmp_path)
    await node.start()
    node.driver.reports.put_nowait(health_report("hot", d0=UNHEALTHY))
    await asyncio.sleep(1)
    await node.close()
    again = Watched(tmp_path)
    assert again.now("d0") == UNHEALTHY
    await asyncio.sleep(31)
    assert again.now("d0") == UNKNOWN
    await again.close()


async def test_a_failing_disk_is_ignored(tmp_path: Path) -> None:
    node = Watched(tmp_path / "nowhere")
    await node.start()
    node.driver.reports.put_nowait(health_report(d0=UNHEALTHY))
    await asyncio.sleep(1)
    assert node.now("d0") == UNHEALTHY
    await node.close()
