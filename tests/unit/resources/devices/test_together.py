"""Devices and CPUs of one pod are on one NUMA node, or the pod is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.pod import HeldResource, Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.remote.errors import Code
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.placement.managers import CpuManager
from kubeletpy.resources.placement.model import AllocationRefused, Policy
from kubeletpy.resources.placement.options import CpuOptions
from kubeletpy.resources.placement.static_cpus import StaticCpus
from kubeletpy.resources.placement.topology_manager import TopologyManager
from tests.kit.devices import SimPlugin, failed
from tests.kit.machines import machine, pod_of, sized

pytestmark = pytest.mark.virtual_time

GPU = "vendor.example/gpu"
SHAPE = machine(sockets=2, nodes=1, cores=4)
"""CPUs 0-3 are of NUMA node 0, 4-7 of NUMA node 1."""


def requesting(cpus: int, gpus: int, name: str = "c") -> Any:
    made = sized(name, str(cpus))
    made["resources"]["limits"][GPU] = made["resources"]["requests"][GPU] = str(gpus)
    return made


@dataclass
class Agent:
    """Managers of one agent, and their decisions."""

    devices: DeviceManager
    cpus: CpuManager
    topology: TopologyManager
    stated: list[Decision]
    users: set[str]

    async def admit(self, pod: Pod) -> None:
        self.users.add(pod.uid)
        try:
            settle = self.topology.admit(pod)
            if settle is not None:
                await settle()
        except AllocationRefused:
            self.users.discard(pod.uid)
            raise

    def has(self, uid: str, name: str = "c") -> tuple[list[str], list[int]]:
        ids = self.devices.by_container().get((uid, name), {}).get(GPU, {})
        return sorted(ids), sorted(self.cpus.state.container_cpus(uid, name) or ())


@asynccontextmanager
async def agent(
    root: Path, plugin: SimPlugin, policy: Policy = Policy.SINGLE_NUMA_NODE, **more: Any
) -> AsyncIterator[Agent]:
    stated: list[Decision] = []

    def decided(uid: str, decisions: Sequence[Decision]) -> None:
        stated.extend(decisions)

    users: set[str] = set()
    devices = DeviceManager(
        root / "device-plugins",
        DeviceMetrics(Families()),
        nodes=tuple(SHAPE.nodes),
        pod_runs=lambda uid: False,
        is_active=lambda uid: uid in users,
        node_changed=lambda: None,
        pod_changed=lambda uid: None,
        open_plugin=lambda socket, resource: cast(Any, plugin),
        listen=False,
    )
    (root / "device-plugins").mkdir()
    metrics = Metrics().placement
    cpus = CpuManager(StaticCpus(SHAPE, frozenset({0}), CpuOptions()), root, metrics)
    topology = TopologyManager(
        (devices, cpus),
        tuple(SHAPE.nodes),
        policy,
        metrics,
        users=lambda: users,
        decided=decided,
        **more,
    )
    await devices.start()
    await cpus.start()
    await devices.plugins.register(GPU, "socket")
    await asyncio.sleep(0.2)
    yield Agent(devices, cpus, topology, stated, users)
    await devices.close()


def four() -> SimPlugin:
    return SimPlugin("a0", "b0", "c1", "d1", nodes={"a0": 0, "b0": 0, "c1": 1, "d1": 1})


async def test_cpus_are_where_the_devices_are(tmp_path: Path) -> None:
    async with agent(tmp_path, four()) as of:
        await of.admit(pod_of(requesting(4, 1)))
        assert of.has("uid-1") == (["c1"], [4, 5, 6, 7]), "node 0 has three CPUs to give"
        why = f"{GPU} (devices) could come from 0 or 1; cpu (cpu) could come from 1"
        assert of.stated == [Decision("container c goes to NUMA node 1", why)]
        reported = pod_of(requesting(4, 1))
        assert of.devices.held_by(reported) == [HeldResource("c", GPU, "c1", (1,))]
        assert of.cpus.held_by(reported) == [HeldResource("c", "cpu", "4-7, its own", (1,))]
        other = pod_of(sized("d", "100m"), uid="uid-9")
        assert of.cpus.held_by(other) == [HeldResource("d", "cpu", "0-3, shared")]
        await of.admit(pod_of(requesting(2, 2), uid="uid-2"))
        assert of.has("uid-2") == (["a0", "b0"], [1, 2])


async def test_resources_on_different_nodes_are_refused_with_both_sides(tmp_path: Path) -> None:
    async with agent(tmp_path, four()) as of:
        await of.admit(pod_of(requesting(1, 2)))
        assert of.has("uid-1") == (["a0", "b0"], [1])
        with pytest.raises(AllocationRefused, match="with Topology locality") as refused:
            await of.admit(pod_of(requesting(4, 2), requesting(1, 1, "d"), uid="uid-2"))
        assert refused.value.reason == "TopologyAffinityError"
        assert of.stated[-1].what == "refused: no place for container d"
        assert f"{GPU} (devices) can't be had near to each other" in of.stated[-1].why
        with pytest.raises(AllocationRefused):
            await of.admit(pod_of(requesting(1, 1), requesting(4, 1, "d"), uid="uid-4"))
        assert of.stated[-1].what == "refused: no place for container d"
        assert "cpu (cpu) can't be had near to each other" in of.stated[-1].why
        await of.admit(pod_of(requesting(4, 2), uid="uid-3"))
        assert of.has("uid-3") == (["c1", "d1"], [4, 5, 6, 7]), "what it had booked is free again"


@pytest.mark.parametrize("policy", [Policy.NONE, Policy.BEST_EFFORT])
async def test_other_policies_allow_different_nodes(tmp_path: Path, policy: Policy) -> None:
    async with agent(tmp_path, four(), policy) as of:
        await of.admit(pod_of(requesting(4, 3)))
        devices, cpus = of.has("uid-1")
        assert (len(devices), len(cpus)) == (3, 4)


async def test_a_pod_scope_holds_during_concurrent_admissions(tmp_path: Path) -> None:
    plugin = four()
    plugin.faults["Allocate"] = lambda: asyncio.sleep(5)
    async with agent(tmp_path, plugin, scope="pod") as of:
        first = asyncio.create_task(of.admit(pod_of(requesting(1, 1), requesting(1, 1, "d"))))
        await asyncio.sleep(1)
        with pytest.raises(AllocationRefused, match="with Topology locality"):
            await of.admit(pod_of(requesting(1, 3), uid="uid-2"))
        second = asyncio.create_task(of.admit(pod_of(requesting(3, 2), uid="uid-3")))
        await asyncio.gather(first, second)
        assert (of.has("uid-1"), of.has("uid-1", "d")) == ((["a0"], [1]), (["b0"], [2]))
        assert of.has("uid-3") == (["c1", "d1"], [4, 5, 6])


async def test_cpus_are_released_when_a_plugin_fails(tmp_path: Path) -> None:
    plugin = four()
    async with agent(tmp_path, plugin) as of:
        plugin.faults["Allocate"] = lambda: failed("Allocate", Code.UNKNOWN, "burnt")
        with pytest.raises(AllocationRefused, match="burnt, which is unexpected") as refused:
            await of.admit(pod_of(requesting(1, 1), uid="uid-2"))
        assert refused.value.reason == "UnexpectedAdmissionError"
        assert of.stated[-1].what == "refused: no devices for container c"
        of.topology.release()
        assert not of.cpus.state.entries
        assert not of.devices.state.held_ids(GPU)
