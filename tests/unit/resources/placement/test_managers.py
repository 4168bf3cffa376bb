"""Allocations of CPUs and memory persist on disk, across restarts and while other pods change."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.host import state_file
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.remote.errors import CRIError
from kubeletpy.resources.placement.machine import TopologyUnknown, read_machine
from kubeletpy.resources.placement.managers import CpuManager, CpuReconciler, RunningContainer
from kubeletpy.resources.placement.model import (
    NOT_PREFERRED,
    AllocationRefused,
    Hint,
    Hints,
    NumaNode,
    Policy,
    format_ids,
    parse_ids,
)
from kubeletpy.resources.placement.options import CpuOptions
from kubeletpy.resources.placement.static_cpus import StaticCpus
from kubeletpy.resources.placement.static_manager import StateUnusable
from kubeletpy.resources.placement.topology_manager import TopologyManager
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.kit.machines import machine, pod_of, sized, write_sysfs

pytestmark = pytest.mark.virtual_time

POLICY = StaticCpus(machine(cores=4), parse_ids("0"), CpuOptions())


def manager(root: Path, policy: StaticCpus | None = POLICY, **more: Any) -> CpuManager:
    return CpuManager(policy, root, Metrics().placement, **more)


def on_disk(root: Path) -> Any:
    return json.loads((root / "cpu_manager_state").read_text())


async def allocate(of: CpuManager, pod: Pod) -> None:
    every = (*pod.init_containers, *pod.containers)
    booked = [of.book(pod, container, NOT_PREFERRED) for container in every]
    if any(booked):
        await of.settle(pod)


async def test_allocations_outlive_the_agent(tmp_path: Path) -> None:
    first = manager(tmp_path)
    await first.start()
    assert on_disk(tmp_path)["defaultCpuSet"] == "0-3"
    pod = pod_of(sized("c", "2"))
    await allocate(first, pod)
    assert on_disk(tmp_path)["entries"] == {"uid-1": {"c": "1-2"}}
    second = manager(tmp_path)
    await second.start()
    await allocate(second, pod)
    assert second.state == first.state
    second.release(["uid-2"])
    await second.close()
    assert "entries" not in on_disk(tmp_path)
    assert on_disk(tmp_path)["defaultCpuSet"] == "0-3"


async def test_an_allocation_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    of = manager(tmp_path / "root")
    await of.start()
    (tmp_path / "root/cpu_manager_state").unlink()
    (tmp_path / "root").rmdir()
    (tmp_path / "root").write_text("no directory")
    with pytest.raises(AllocationRefused, match="cpu_manager_state not being written"):
        await allocate(of, pod_of(sized("c", "2")))
    assert of.state == POLICY.initial()


@pytest.mark.parametrize(
    ("text", "policy", "why"),
    [
        ('{"policyName":"none","defaultCpuSet":"","checksum":0}', POLICY, '"none"'),
        ('{"policyName":"static","defaultCpuSet":"0-3","checksum":0}', None, '"static"'),
        ('{"policyName":"static","defaultCpuSet":"0-7","checksum":0}', POLICY, "doesn't match"),
        ("garbage", POLICY, "not JSON"),
        ('{"policyName":"static","defaultCpuSet":"0-3","checksum":7}', POLICY, "checksum is 7"),
    ],
)
async def test_states_the_agent_does_not_start_with(
    tmp_path: Path, text: str, policy: StaticCpus | None, why: str
) -> None:
    (tmp_path / "cpu_manager_state").write_text(text)
    with pytest.raises(
        StateUnusable, match=r"cpu_manager_state can't be used.*delete the file"
    ) as e:
        await manager(tmp_path, policy).start()
    assert why in str(e.value)
    assert (tmp_path / "cpu_manager_state").read_text() == text


@pytest.mark.parametrize("policy", [None, POLICY], ids=["none", "static"])
async def test_a_start_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: StaticCpus | None
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_file, "write_private", full)
    if policy is None:
        await manager(tmp_path, policy).start()
    else:
        with pytest.raises(StateUnusable, match=r"No space left.*Repair its file system"):
            await manager(tmp_path, policy).start()
    monkeypatch.undo()
    await manager(tmp_path, policy).start()
    monkeypatch.setattr(state_file, "write_private", full)
    await manager(tmp_path, policy).start()


async def test_the_cpuset_and_quota_of_a_container(tmp_path: Path) -> None:
    of = manager(tmp_path)
    await of.start()
    pod = pod_of(sized("c", "2"), sized("d", "500m"))
    await allocate(of, pod)
    nothing = ContainerAdditions(EnvironmentInputs())
    own, pool = [(await of.provide(pod, c, nothing)).placement for c in pod.containers]
    assert (own.cpuset_cpus, own.no_cfs_quota) == ("1-2", True)
    assert (pool.cpuset_cpus, pool.no_cfs_quota) == ("0,3", False)
    assert of.has_no_quota(pod)
    assert not of.has_no_quota(pod_of(sized("c", "2"), uid="uid-2"))
    limited = manager(tmp_path, quota_off=False)
    await limited.start()
    assert not limited.has_no_quota(pod)
    assert not (await limited.provide(pod, pod.containers[0], nothing)).placement.no_cfs_quota


async def test_without_a_policy_containers_get_no_placement(tmp_path: Path) -> None:
    of = manager(tmp_path, None)
    await of.start()
    assert on_disk(tmp_path) == {"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}
    pod = pod_of(sized("c", "2"))
    await allocate(of, pod)
    supplied = ContainerAdditions(EnvironmentInputs())
    assert await of.provide(pod, pod.containers[0], supplied) == supplied


class Runtime:
    """Records the CPU set of each update."""

    def __init__(self) -> None:
        self.notified: list[tuple[str, str]] = []
        self.error: CRIError | None = None

    async def update_container_resources(self, id: str, resources: Any) -> None:
        self.notified.append((id, resources.cpuset_cpus))
        if self.error is not None:
            raise self.error


async def test_running_containers_are_moved_once() -> None:
    runtime: Any = Runtime()
    cpus = {"a": parse_ids("0-3"), "b": parse_ids("")}
    running = [RunningContainer(f"id-{name}", name, "uid-1") for name in cpus]
    of = CpuReconciler(runtime, lambda: running, lambda uid, name: cpus[name], 10)
    await of.reconcile()
    await of.reconcile()
    assert runtime.notified == [("id-a", "0-3")]
    cpus["a"] = parse_ids("0")
    runtime.error = CRIError("UpdateContainerResources", "busy")
    await of.reconcile()
    runtime.error = None
    await of.reconcile()
    await of.reconcile()
    assert runtime.notified[1:] == [("id-a", "0"), ("id-a", "0")]


class Provider:
    """A hint provider with fixed hints, which can refuse at once or later."""

    def __init__(self, name: str, hints: Hints, refuses: str = "", *, later: str = "") -> None:
        self.name = name
        self._hints = hints
        self._refuses = refuses
        self._later = later
        self.settled: list[str] = []
        self.requested: list[tuple[str, Hint]] = []
        self.users: Any = None

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        self.requested.append(("" if container is None else container["name"], NOT_PREFERRED))
        return self._hints

    def is_requested_by(self, pod: Pod) -> bool:
        return True

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        self.requested.append((container["name"], hint))
        if self._refuses:
            raise AllocationRefused(self._refuses)
        return bool(self._later)

    async def settle(self, pod: Pod) -> None:
        self.settled.append(pod.uid)
        if self._later != "yes":
            raise AllocationRefused(self._later, container="i")

    def release(self, uids: Any) -> None:
        self.users = uids


def topology_manager(
    *providers: Provider, policy: Policy = Policy.RESTRICTED, **more: Any
) -> tuple[TopologyManager, list[Decision]]:
    stated: list[Decision] = []

    def decided(uid: str, decisions: Sequence[Decision]) -> None:
        stated.extend(decisions)

    made = TopologyManager(providers, (0, 1), policy, Metrics().placement, decided=decided, **more)
    return made, stated


TWO = pod_of(sized("c"), sized("d"), initContainers=[sized("i")])
LEFT, RIGHT = {"cpu": [Hint(1, True)]}, {"dev": [Hint(2, True)]}


async def test_each_container_has_its_own_numa_nodes() -> None:
    cpu = Provider("cpu", LEFT)
    of, stated = topology_manager(cpu)
    assert of.admit(TWO) is None
    supplied = [each for each in cpu.requested if each[1] is not NOT_PREFERRED]
    assert supplied == [(name, Hint(1, True)) for name in "icd"]
    assert stated[0] == Decision("container i goes to NUMA node 0", "cpu (cpu) could come from 0")


async def test_the_containers_of_a_pod_share_numa_nodes() -> None:
    cpu = Provider("cpu", LEFT)
    of, _ = topology_manager(cpu, scope="pod")
    assert of.admit(TWO) is None
    assert cpu.requested == [("", NOT_PREFERRED), *((name, Hint(1, True)) for name in "icd")]


async def test_without_a_policy_no_provider_gives_hints() -> None:
    cpu = Provider("cpu", LEFT)
    of, _ = topology_manager(cpu, policy=Policy.NONE, scope="pod")
    assert of.admit(TWO) is None
    assert cpu.requested == [(name, NOT_PREFERRED) for name in "icd"]


async def test_a_refusal_names_the_providers_that_disagree() -> None:
    cpu, devices = Provider("cpu", LEFT), Provider("devices", RIGHT)
    of, stated = topology_manager(devices, cpu)
    with pytest.raises(AllocationRefused, match="with Topology locality") as refused:
        of.admit(TWO)
    assert refused.value.reason == "TopologyAffinityError"
    assert stated == [
        Decision(
            "refused: no place for container i",
            "topologyManagerPolicy restricted finds no NUMA nodes: "
            "dev (devices) could come from 1; cpu (cpu) could come from 0",
        )
    ]


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({}, ["container i", "container c", "container d"]),
        ({"scope": "pod"}, ["pod"]),
        ({"policy": Policy.NONE}, []),
    ],
)
def test_a_preview_books_nothing(more: Any, places: list[str]) -> None:
    cpu = Provider("cpu", LEFT)
    of, stated = topology_manager(cpu, **more)
    assert of.preview(TWO) == [
        Decision(f"{place} goes to NUMA node 0", "cpu (cpu) could come from 0") for place in places
    ]
    assert {hint for _, hint in cpu.requested} <= {NOT_PREFERRED}
    assert stated == []


def test_a_preview_of_a_refusal_names_the_providers_that_disagree() -> None:
    cpu, devices = Provider("cpu", LEFT), Provider("devices", RIGHT)
    of, stated = topology_manager(devices, cpu)
    with pytest.raises(AllocationRefused) as refused:
        of.preview(TWO)
    assert (refused.value.reason, str(refused.value)) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality: topologyManagerPolicy restricted "
        "finds no NUMA nodes: dev (devices) could come from 1; cpu (cpu) could come from 0",
    )
    assert stated == []
    of, _ = topology_manager(Provider("cpu", {}))
    assert of.preview(TWO) == []


async def test_an_exhausted_provider_refuses_the_pod() -> None:
    of, stated = topology_manager(Provider("memory", {}, "none left"), policy=Policy.BEST_EFFORT)
    with pytest.raises(AllocationRefused, match="none left") as refused:
        of.admit(TWO)
    assert refused.value.reason == "UnexpectedAdmissionError"
    assert stated == [Decision("refused: no memory for container i", "none left")]


async def test_only_providers_with_work_left_settle_later() -> None:
    devices, cpu = Provider("devices", {}, later="yes"), Provider("cpu", {})
    of, _ = topology_manager(devices, cpu, policy=Policy.NONE)
    settle = of.admit(TWO)
    assert settle is not None
    assert (devices.settled, cpu.settled) == ([], [])
    await settle()
    assert (devices.settled, cpu.settled) == (["uid-1"], []), "once for all containers"


async def test_a_later_refusal_is_reported_too() -> None:
    of, stated = topology_manager(Provider("devices", {}, later="it is broken"), policy=Policy.NONE)
    settle = of.admit(TWO)
    assert settle is not None
    with pytest.raises(AllocationRefused, match="it is broken"):
        await settle()
    assert stated == [Decision("refused: no devices for container i", "it is broken")]


async def test_an_invalid_quantity_is_refused(tmp_path: Path) -> None:
    cpus = manager(tmp_path)
    of = TopologyManager([cpus], (), Policy.NONE, Metrics().placement)
    with pytest.raises(AllocationRefused, match="which is unexpected"):
        of.admit(pod_of(sized("c", "much")))


async def test_nothing_is_taken_back_before_all_pods_are_known() -> None:
    cpu = Provider("cpu", LEFT)
    users: list[Any] = [None, {"uid-1"}]
    of, _ = topology_manager(cpu, users=lambda: users.pop(0))
    assert of.admit(TWO) is None
    assert cpu.users is None
    of.release()
    assert cpu.users == {"uid-1"}


SHAPES = [
    machine(),
    machine(threads=2),
    machine(sockets=2, nodes=2, cores=4, threads=2, caches=2),
    machine(sockets=2, nodes=4, cores=8, threads=2, caches=1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: f"{len(each.cpus)} CPUs")
def test_a_machine_is_read(tmp_path: Path, shape: Any) -> None:
    write_sysfs(tmp_path, shape)
    found = read_machine(tmp_path)
    assert found.cpus == shape
    assert set(found.nodes) == set(shape.nodes)
    assert found.nodes[0] == NumaNode(1 << 30, {2 << 20: 6 << 20})
    assert found.distances[0][0] == 10


def test_cpus_that_are_off_are_not_there(tmp_path: Path) -> None:
    write_sysfs(tmp_path, machine(threads=2))
    (tmp_path / "devices/system/cpu/online").write_text("0-3,5-7\n")
    assert format_ids(read_machine(tmp_path).cpus.ids) == "0-3,5-7"


def test_a_machine_without_nodes_has_one(tmp_path: Path) -> None:
    write_sysfs(tmp_path, machine())
    (tmp_path / "devices/system/node/online").unlink()
    found = read_machine(tmp_path)
    assert found.nodes == {}
    assert set(found.cpus.nodes) == {0}


def test_an_empty_sysfs_is_an_unknown_topology(tmp_path: Path) -> None:
    with pytest.raises(TopologyUnknown, match="can't be known"):
        read_machine(tmp_path)


def test_this_machine() -> None:
    assert read_machine().cpus.ids
