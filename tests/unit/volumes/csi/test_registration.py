"""A driver on a real socket: found, registered, reported to the cluster, used and removed."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import CSINODES, NODES
from kubeletpy.metrics.registry import Metrics
from kubeletpy.resources.plugins.model import CSI
from kubeletpy.resources.plugins.plugin_manager import PluginManager, SocketRegistrations
from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.csi.host import CsiDrivers, DriverObjects, connect_by
from kubeletpy.volumes.csi.objects import ANNOTATION
from kubeletpy.volumes.csi.registration import CsiDriverHandler, CsiNodeWriter
from tests.csi_driver.faults import Fault
from tests.csi_driver.running import registered, running
from tests.csi_driver.services import Options
from tests.kit.virtual_time import settle
from tests.kit.volumes import Cluster

NAME = "test.csi.example.com"


class Node:
    """The parts of an agent that handle CSI registrations."""

    def __init__(self, registry: Path) -> None:
        self.registry = registry
        self.cluster = Cluster()
        self.metrics = Metrics()
        self.drivers = CsiDrivers(connect_by(self.metrics.csi))
        self.objects = DriverObjects(self.cluster)
        self.writer = CsiNodeWriter("n", self.cluster, random.Random(1))
        self.handler = CsiDriverHandler(self.drivers, self.objects, self.writer)
        self.manager = PluginManager(
            self.registry, {CSI: self.handler}, SocketRegistrations(), self.metrics.plugins
        )
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.drivers.on_change(self.changes.put_nowait)

    async def no_driver_left(self) -> None:
        """Wait until the CSINode has no driver."""
        while self.entries():
            await self.cluster.wrote()

    def entries(self) -> dict[str, object]:
        found = self.cluster.get_now(CSINODES, "n") or {"spec": {"drivers": []}}
        return {each["name"]: each for each in found["spec"]["drivers"]}


@asynccontextmanager
async def node(root: Path) -> AsyncIterator[Node]:
    made = Node(root / "plugins_registry")
    made.registry.mkdir(exist_ok=True)
    tasks = [asyncio.create_task(each()) for each in (made.manager.run, made.objects.run)]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await made.handler.close()
        await made.drivers.close()


async def test_a_driver_registers_and_leaves(short: Path) -> None:
    options = Options(max_volumes=7, topology={"zone": "a"})
    async with node(short) as agent, running(short / "driver", options) as driver:
        async with registered(driver, agent.registry):
            await driver.until_told()
            assert agent.drivers.names == [NAME]
            assert agent.entries() == {
                NAME: {
                    "name": NAME,
                    "nodeID": "node",
                    "topologyKeys": ["zone"],
                    "allocatable": {"count": 7},
                }
            }
            assert await agent.changes.get() == NAME
        async with asyncio.timeout(20):
            assert await agent.changes.get() == NAME
            assert agent.drivers.names == []
            await agent.no_driver_left()
        annotations = agent.cluster.get_now(NODES, "n")["metadata"]["annotations"]
        assert ANNOTATION not in annotations
        scrape = agent.metrics.render().decode()
        assert 'method_name="/csi.v1.Node/NodeGetInfo"' in scrape
        assert "plugin_manager_total_plugins{" not in scrape


async def test_a_driver_at_its_limit_reports_its_capacity_again(short: Path) -> None:
    def fit() -> object:
        return agent.cluster.get_now(CSINODES, "n")["spec"]["drivers"][0]["allocatable"]["count"]

    async with (
        node(short) as agent,
        running(short / "driver", Options(max_volumes=7)) as driver,
        registered(driver, agent.registry),
    ):
        read: asyncio.Queue[str] = asyncio.Queue()
        agent.objects.on_change(read.put_nowait)
        agent.cluster.driver(NAME, nodeAllocatableUpdatePeriodSeconds=600)
        await driver.until_told()
        assert not agent.handler.full("another")
        assert fit() == 7
        driver.services.options = Options(max_volumes=3)
        async with asyncio.timeout(20):
            while not agent.handler.full(NAME):  # its object had not been read yet
                await read.get()
            while fit() != 3:
                await agent.cluster.wrote()
        requested = driver.faults.names().count("NodeGetInfo")
        assert agent.handler.full(NAME)
        await settle()
        assert driver.faults.names().count("NodeGetInfo") == requested, "it was called just now"


@pytest.mark.parametrize(
    ("options", "fault", "versions", "problem"),
    [
        (Options(node_id=""), None, ("1.0.0",), "NodeGetInfo of driver .* gives no node_id"),
        (Options(), Fault(code="INTERNAL"), ("1.0.0",), "NodeGetInfo of driver .* = Internal"),
        (Options(), None, ("0.3.0",), r"none of its versions is supported \(1.x\): 0.3.0"),
        (Options(name="a_"), None, ("1.0.0",), "'a_' cannot be the name of a CSI driver"),
        (Options(), Fault(answer=b"\xff"), ("1.0.0",), "not what the call returns"),
    ],
)
async def test_a_driver_that_cannot_be_used_gets_the_reason(
    short: Path, options: Options, fault: Fault | None, versions: tuple[str, ...], problem: str
) -> None:
    async with node(short) as agent, running(short / "driver", options) as driver:
        if fault is not None:
            driver.faults.by_method["NodeGetInfo"] = fault
        async with registered(driver, agent.registry, versions=versions):
            await driver.until_told(registered=False)
        assert agent.drivers.names == []
        assert agent.entries() == {}
    assert re.search(problem, driver.notified[-1][1])


async def test_a_failed_write_of_the_csi_node_is_retried(short: Path) -> None:
    async with node(short) as agent, running(short / "driver") as driver:
        agent.cluster.refusals = [Unavailable("away")] * 4
        async with registered(driver, agent.registry):
            await driver.until_told(registered=False)
            assert "away" in driver.notified[-1][1]
            await driver.until_told()
            assert list(agent.entries()) == [NAME]


async def test_an_agent_that_starts_again_finds_its_drivers(short: Path) -> None:
    (short / "plugins_registry").mkdir()
    async with running(short / "driver") as driver, registered(driver, short / "plugins_registry"):
        for _ in range(2):
            driver.notified.clear()
            async with node(short) as agent:
                await driver.until_told()
                assert agent.drivers.names == [NAME]


async def test_a_driver_that_dies_is_uncertain_and_is_used_when_it_is_back(short: Path) -> None:
    async with node(short) as agent, AsyncExitStack() as stack:
        async with running(short / "driver") as driver:
            await stack.enter_async_context(registered(driver, agent.registry))
            await driver.until_told()
            found = agent.drivers.get(NAME)
            assert found is not None
            client = found.client
            assert await client.stages(client.until())
        with pytest.raises(OperationFailed, match="NodeUnpublishVolume of driver") as raised:
            await client.unpublish("h", "/t", client.until())
        assert raised.value.outcome is FailureOutcome.UNCERTAIN
        async with running(short / "driver", Options(stage=False)):
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert not await client.stages(client.until())
                        break
                    except OperationFailed as error:
                        assert error.outcome is FailureOutcome.TRANSIENT
                        await asyncio.sleep(0.05)
