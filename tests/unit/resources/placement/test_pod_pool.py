"""Pods with pod-level resources, placed as a unit (gate PodLevelResourceManagers).

The CPU numbers are those that a kubelet 1.37.2 gives on the same machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.managers import CpuManager, MemoryManager
from kubeletpy.resources.placement.model import (
    NOT_PREFERRED,
    AllocationRefused,
    Cpu,
    CpuTopology,
    Hint,
    PodLevelPlacement,
    Policy,
    format_ids,
    parse_ids,
)
from kubeletpy.resources.placement.options import CpuOptions
from kubeletpy.resources.placement.state import (
    Block,
    CpuState,
    MemoryState,
    NodeMemory,
    Table,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
)
from kubeletpy.resources.placement.static_cpus import StaticCpus
from kubeletpy.resources.placement.static_memory import StaticMemory
from kubeletpy.resources.placement.topology_manager import TopologyManager
from tests.kit.machines import pod_of, sized

pytestmark = pytest.mark.virtual_time

NOTHING, CONTAINERS, POOL = PodLevelPlacement
TWO_SOCKETS = CpuTopology({i: Cpu(i, i % 6, i % 2, i % 2, i % 2) for i in range(12)})
"""NUMA node 0 has the even CPUs; 0 and 6 are one core."""
NODE_0 = Hint(1, True)
ALWAYS = {"restartPolicy": "Always"}


def cpus(pod_level: PodLevelPlacement = POOL, reserved: str = "0", **options: bool) -> StaticCpus:
    return StaticCpus(TWO_SOCKETS, parse_ids(reserved), CpuOptions(**options), pod_level)


def memory(pod_level: PodLevelPlacement = POOL, *kinds: str, each: int = 100) -> StaticMemory:
    table = Table(each + 10, 10, each, 0, each)
    tables = dict.fromkeys(("memory", *kinds), table)
    return StaticMemory({node: NodeMemory(0, tables, (node,)) for node in (0, 1)}, pod_level)


def sharing(name: str, **more: Any) -> Any:
    return {"name": name, "image": "i", **more}


def own(name: str, cpu: str = "1", memory: str = "10", **more: Any) -> Any:
    return sized(name, cpu, memory, **more)


def pod(cpu: str, *containers: Any, init: tuple[Any, ...] = (), **more: Any) -> Pod:
    amounts = {"cpu": cpu, "memory": more.pop("memory", "60"), **more.pop("extra", {})}
    resources = {"requests": amounts, "limits": more.pop("limits", amounts)}
    return pod_of(*containers, initContainers=list(init), resources=resources, **more)


def parts(state: CpuState, uid: str = "uid-1") -> dict[str, str]:
    return {name: format_ids(found) for name, found in state.entries.get(uid, {}).items()}


def sizes(state: MemoryState, kind: str = "memory", uid: str = "uid-1") -> dict[str, int]:
    return {
        name: sum(block.size for block in blocks if block.type == kind)
        for name, blocks in state.entries.get(uid, {}).items()
    }


@pytest.mark.parametrize(
    ("placed", "pool", "expected"),
    [
        pytest.param(pod("2", own("a")), "2,8", {"a": "2"}, id="the rest stays the pod's"),
        pytest.param(pod("1", sharing("s")), "6", {"s": "6"}, id="all share"),
        pytest.param(
            pod("3", own("a"), own("b"), sharing("s")),
            "2,6,8",
            {"a": "6", "b": "2", "s": "8"},
            id="mixed",
        ),
        pytest.param(
            pod("3", own("a"), own("half", "500m"), {**own("b"), "resources": {}}),
            "2,6,8",
            {"a": "6", "half": "2,8", "b": "2,8"},
            id="half a CPU is not exclusive",
        ),
        pytest.param(
            pod("2", own("a"), own("b"), init=(own("i"), own("j"))),
            "2,8",
            {"i": "2", "j": "2", "a": "2", "b": "8"},
            id="init containers take turns",
        ),
        pytest.param(
            pod(
                "3",
                own("a"),
                sharing("s"),
                init=(sharing("i"), own("sidecar", **ALWAYS), sharing("j")),
            ),
            "2,6,8",
            {"i": "2,6,8", "sidecar": "6", "j": "2,8", "a": "2", "s": "8"},
            id="a sidecar keeps its CPUs",
        ),
        pytest.param(
            pod(
                "3",
                own("a"),
                sharing("s"),
                init=(sharing("i"), sharing("sidecar", **ALWAYS), sharing("j")),
            ),
            "2,6,8",
            {"i": "2,6,8", "sidecar": "2,8", "j": "2,6,8", "a": "6", "s": "2,8"},
            id="a sidecar shares",
        ),
    ],
)
def test_a_pool_is_divided(placed: Pod, pool: str, expected: dict[str, str]) -> None:
    of = cpus()
    state = of.allocate_pool(of.initial(), placed, NODE_0)
    assert format_ids(state.pools["uid-1"]) == pool
    assert parts(state) == expected
    assert state.pool == of.topology.ids - state.pools["uid-1"]
    assert of.problem(state) == "", "the agent starts with it"
    assert read_cpu_state(write_cpu_state(state)) == state
    assert of.allocate_pool(state, placed, NODE_0) is state, "admitted again after a restart"
    assert of.hints(state, placed, None) == {"cpu": (Hint(1, True), Hint(3, False))}
    assert state.without_all_but([]) == of.initial()


@pytest.mark.parametrize(
    "placed",
    [
        pytest.param(pod("2", own("a"), limits={"cpu": "3", "memory": "60"}), id="Burstable"),
        pytest.param(pod("1500m", own("a")), id="not whole CPUs"),
    ],
)
def test_pods_without_a_pool_of_cpus(placed: Pod) -> None:
    of = cpus()
    assert of.hints(of.initial(), placed, None) == {}
    assert of.allocate_pool(of.initial(), placed, NODE_0) == of.initial()


USED_UP = [
    pytest.param(pod("2", own("a"), own("b"), sharing("s")), "s", id="regular"),
    pytest.param(
        pod("1", sharing("s"), init=(own("a", **ALWAYS),)), "s", id="a sidecar has it all"
    ),
    pytest.param(
        pod("2", own("a"), init=(sharing("s", **ALWAYS), own("b", **ALWAYS))), "s", id="sidecar"
    ),
    pytest.param(
        pod("1", own("a"), init=(own("b", **ALWAYS), sharing("i"))), "i", id="init container"
    ),
]


@pytest.mark.parametrize(("placed", "container"), USED_UP)
def test_a_pool_with_nothing_left_to_share_is_refused(placed: Pod, container: str) -> None:
    of = cpus()
    assert of.hints(of.initial(), placed, None) == {"cpu": ()}
    with pytest.raises(AllocationRefused) as refused:
        of.allocate_pool(of.initial(), placed, NODE_0)
    assert refused.value.reason == "EmptyPodSharedPoolError"
    assert str(refused.value).endswith(
        f"all cpu of the pod: none is left for container {container}"
    )


@pytest.mark.parametrize(
    "placed",
    [
        pod("2", own("a"), own("b")),
        pod("1", own("a"), init=(sharing("i"),)),
        pod("2", own("a"), own("b"), init=(sharing("i"), own("j", "2"))),
    ],
)
def test_a_pool_that_nobody_else_needs_may_be_used_up(placed: Pod) -> None:
    of = cpus()
    assert of.allocate_pool(of.initial(), placed, NODE_0).pools["uid-1"]


def test_a_pool_has_whole_cores_if_so_configured() -> None:
    of = cpus(reserved="0-1", full_cores=True)
    with pytest.raises(AllocationRefused, match="SMT Alignment Error: requested 3 cpus"):
        of.allocate_pool(of.initial(), pod("3", own("a", "3")), NODE_0)
    state = of.allocate_pool(of.initial(), pod("4", own("a", "2"), own("b", "2")), NODE_0)
    assert parts(state) == {"a": "2,8", "b": "4,10"}


def test_too_few_cpus_leave_the_state_as_it_is() -> None:
    of = cpus()
    with pytest.raises(AllocationRefused, match="which is unexpected"):
        of.allocate_pool(of.initial(), pod("12", sharing("s")), NODE_0)


def test_a_pool_without_its_parts_is_divided_again() -> None:
    """A kubelet writes the pool first and may be interrupted before it writes the containers."""
    of = cpus()
    placed = pod("3", own("a"), own("b"), sharing("s"))
    whole = of.allocate_pool(of.initial(), placed, NODE_0)
    for entries in ({}, {"uid-1": {"a": parse_ids("6")}}):
        assert of.problem(found := replace(whole, entries=entries)) == ""
        assert of.allocate_pool(found, placed, NODE_0) == whole
    overlapping = replace(whole, pool=whole.pool | {2})
    assert "overlaps with default cpuset" in of.problem(replace(overlapping, entries={}))


def test_earlier_allocations_of_containers_stay() -> None:
    """The scope was container when the pod was admitted."""
    of = cpus()
    state = of.initial().with_container("uid-1", "a", parse_ids("3"))
    placed = pod("2", own("a"), sharing("s"))
    assert of.allocate_pool(state, placed, NODE_0) is state
    assert of.hints(state, placed, None) == {"cpu": (Hint(2, True), Hint(3, False))}


@pytest.mark.parametrize(
    ("pod_level", "a", "half"), [(NOTHING, 0, 0), (CONTAINERS, 1, 0), (POOL, 1, 0)]
)
def test_which_containers_get_their_own(pod_level: PodLevelPlacement, a: int, half: int) -> None:
    placed = pod("3", own("a"), own("half", "500m"), sized("b", "1", None), sharing("s"))
    found = [cpus(pod_level).requested(placed, each) for each in placed.containers]
    assert found == [a, half, 0, 0]
    booked = [memory(pod_level).requested(placed, each) for each in placed.containers]
    ten = {"memory": 10} if pod_level is not NOTHING else {}
    assert booked == [ten, ten, {}, {}]


def test_settings_and_pods_for_pod_level_placement() -> None:
    of_settings = PodLevelPlacement.of_settings
    assert of_settings(False, Policy.RESTRICTED, "pod") is NOTHING
    assert of_settings(True, Policy.RESTRICTED, "pod") is POOL
    assert of_settings(True, Policy.NONE, "pod") is CONTAINERS
    assert of_settings(True, Policy.RESTRICTED, "container") is CONTAINERS
    assert POOL.pools(pod("1", sharing("s")))
    assert not POOL.pools(pod_of(own("a")))
    assert not CONTAINERS.pools(pod("1", sharing("s")))


def test_memory_is_divided_in_the_same_way() -> None:
    of = memory()
    init = (sharing("i"), own("sidecar", **ALWAYS), sharing("j"))
    placed = pod("3", own("a", memory="20"), sharing("s"), init=init)
    state = of.allocate_pool(of.initial(), placed, NODE_0)
    assert state.pools == {"uid-1": (Block((0,), "memory", 60),)}
    assert sizes(state) == {"i": 60, "sidecar": 10, "j": 50, "a": 20, "s": 30}
    assert [node.tables["memory"].free for node in state.nodes.values()] == [40, 100]
    assert state.nodes[0].assignments == 1, "only the pool counts"
    assert of.problem(state) == ""
    assert read_memory_state(write_memory_state(state)) == state
    assert of.allocate_pool(state, placed, NODE_0) is state
    assert of.hints(state, placed, None) == {"memory": (Hint(1, True),)}
    assert of.without_all_but(state, []) == of.initial()
    for parts in ({}, {"i": state.entries["uid-1"]["i"]}):
        halves = replace(state, entries={"uid-1": parts} if parts else {})
        assert of.problem(halves) == "", "a kubelet was interrupted"
        assert of.hints(halves, placed, None) == {"memory": (Hint(1, True),)}
        assert of.allocate_pool(halves, placed, Hint(2, True)) == state
    lost = replace(state, entries={}, nodes=of.initial().nodes)
    assert "assignments of NUMA node 0" in of.problem(lost), "written by halves"


def test_memory_that_is_used_up() -> None:
    of = memory(POOL, "hugepages-2Mi")
    huge = {"hugepages-2Mi": "20"}
    taking = own("a")
    taking["resources"]["requests"] |= huge
    placed = pod("2", taking, sharing("s"), extra=huge)
    assert of.hints(of.initial(), placed, None) == {"memory": (), "hugepages-2Mi": ()}
    with pytest.raises(AllocationRefused, match="all hugepages-2Mi of the pod") as refused:
        of.allocate_pool(of.initial(), placed, NODE_0)
    assert refused.value.reason == "EmptyPodSharedPoolError"


def test_a_pool_of_more_than_one_node() -> None:
    of = memory()
    state = of.allocate_pool(of.initial(), pod("2", sharing("s"), memory="150"), NOT_PREFERRED)
    assert state.pools == {"uid-1": (Block((0, 1), "memory", 150),)}
    with pytest.raises(AllocationRefused, match="no NUMA nodes with enough memory"):
        of.allocate_pool(state, pod("2", sharing("s"), uid="b"), NOT_PREFERRED)


class Node:
    """The managers on a node, with their topology manager."""

    def __init__(self, root: Path, pod_level: PodLevelPlacement = POOL, **more: Any) -> None:
        self.metrics = Metrics()
        found = self.metrics.placement
        self.cpus = CpuManager(cpus(pod_level), root, found)
        self.memory = MemoryManager(memory(pod_level), root, found)
        self.users: set[str] = set()
        self.manager = TopologyManager(
            (self.cpus, self.memory),
            (0, 1),
            Policy.RESTRICTED,
            found,
            scope="pod" if pod_level is POOL else "container",
            pod_level=pod_level,
            users=lambda: self.users,
            **more,
        )

    async def start(self) -> Node:
        await self.cpus.start()
        await self.memory.start()
        return self

    async def close(self) -> None:
        await self.cpus.close()
        await self.memory.close()

    async def admit(self, placed: Pod) -> None:
        self.users.add(placed.uid)
        if (settle := self.manager.admit(placed)) is not None:
            await settle()

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name and sample.value
        }


MIXED = pod("3", own("a"), own("b"), sharing("s"), init=(own("i", "2"),))


async def test_a_pod_is_placed_at_pod_level(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    await node.admit(MIXED)
    assert node.cpus.pool_of("uid-1") == parse_ids("2,6,8")
    assert [block.size for block in node.memory.pool_of("uid-1")] == [60]
    assert [node.cpus.own_cpus(MIXED, name) for name in "iabs"] == [{2, 8}, {6}, {2}, frozenset()]
    assert [len(node.memory.own_blocks(MIXED, name)) for name in "iabs"] == [1, 1, 1, 0]
    assert node.cpus.placement(MIXED, "a").no_cfs_quota
    assert not node.cpus.placement(MIXED, "s").no_cfs_quota
    assert node.cpus.placement(MIXED, "s").cpuset_cpus == "8"
    assert node.cpus.placement(MIXED, "debug").cpuset_cpus == "0-1,3-5,7,9-11", "ephemeral"
    assert not node.cpus.has_no_quota(MIXED), "one of its containers shares"
    assert [(held.container, held.what) for held in node.cpus.held_by(MIXED)] == [
        ("i", "2,8, its own"),
        ("a", "6, its own"),
        ("b", "2, its own"),
        ("s", "8, shared in the pod"),
    ]
    assert [held.what for held in node.memory.held_by(MIXED)][-1] == "40 shared in the pod"
    assert node.counted("kubelet_resource_manager_allocations_total") == {
        ("cpu", "pod"): 4,
        ("memory", "pod"): 4,
    }
    assert node.counted("kubelet_resource_manager_container_assignments_total") == {
        ("cpu", "pod_exclusive"): 3,
        ("cpu", "pod_shared"): 1,
        ("memory", "pod_exclusive"): 3,
        ("memory", "pod_shared"): 1,
    }
    assert node.counted("kubelet_cpu_manager_pinning_requests_total") == {(): 3}
    assert node.counted("kubelet_cpu_manager_exclusive_cpu_allocation_count") == {(): 3}


async def test_a_restart_keeps_what_a_pod_has(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    await node.admit(MIXED)
    for pod_level in (POOL, CONTAINERS, NOTHING):
        again = await Node(tmp_path, pod_level).start()
        await again.admit(MIXED)
        assert (again.cpus.state, again.memory.state) == (node.cpus.state, node.memory.state)
        assert not again.counted("kubelet_resource_manager_allocations_total")
        assert not again.cpus.own_cpus(MIXED, "s")
    again.users.clear()
    again.manager.release()
    assert (again.cpus.state, again.memory.state) == (cpus().initial(), memory().initial())
    await again.close()
    for name in ("cpu_manager_state", "memory_manager_state"):
        found = json.loads((tmp_path / name).read_text())
        assert not {"data", "entries", "podEntries"} & found.keys(), "as without the gate"


async def test_without_the_gate_nothing_is_booked(tmp_path: Path) -> None:
    node = await Node(tmp_path, NOTHING).start()
    await node.admit(MIXED)
    assert (node.cpus.state, node.memory.state) == (cpus().initial(), memory().initial())


async def test_in_container_scope_containers_get_theirs_from_the_node(tmp_path: Path) -> None:
    node = await Node(tmp_path, CONTAINERS).start()
    placed = pod("2", own("a"), own("b"), sharing("s"))
    await node.admit(placed)
    assert parts(node.cpus.state) == {"a": "6", "b": "2"}, "none need be left of the pod's"
    assert not node.cpus.pool_of("uid-1")
    assert sizes(node.memory.state) == {"a": 10, "b": 10}
    assert not node.cpus.has_no_quota(placed)
    both = pod("2", own("a"), own("b"), uid="both")
    await node.admit(both)
    assert node.cpus.has_no_quota(both)
    assert node.counted("kubelet_resource_manager_container_assignments_total") == {
        ("cpu", "node_exclusive"): 4,
        ("memory", "node_exclusive"): 4,
    }


@pytest.mark.parametrize(
    ("pod_level", "text"),
    [
        (CONTAINERS, "Pod Scope pod with pod-level resources failed admission with a container-"),
        (POOL, "Pod Scope pod with pod-level resources failed admission under pod-scope topology"),
    ],
)
async def test_a_pod_that_is_refused_has_its_own_text(
    tmp_path: Path, pod_level: PodLevelPlacement, text: str
) -> None:
    node = await Node(tmp_path, pod_level).start()
    placed = pod("9", own("a", "9", "10"), sharing("s"))
    await node.admit(pod("3", own("x", "3"), uid="before"))
    with pytest.raises(AllocationRefused, match=f"^{text}") as refused:
        await node.admit(placed)
    assert refused.value.reason == "TopologyAffinityError"
    with pytest.raises(AllocationRefused, match=r"^Resources cannot be allocated"):
        await node.admit(pod_of(own("a", "9"), uid="other"))


async def test_a_refused_pool_is_counted(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    for manager, placed in (
        (node.cpus, pod("1", own("a"), sharing("s"))),
        (node.memory, pod("2", own("a", memory="60"), sharing("s"))),
    ):
        with pytest.raises(AllocationRefused, match="pod rejected"):
            manager.book(placed, placed.containers[0], NODE_0)
    assert node.counted("kubelet_resource_manager_allocation_errors_total") == {
        ("cpu", "pod"): 1,
        ("memory", "pod"): 1,
    }


async def test_a_pool_that_cannot_be_written_is_released(tmp_path: Path) -> None:
    root = tmp_path / "root"
    node = await Node(root).start()
    for file in root.iterdir():
        file.unlink()
    root.rmdir()
    root.write_text("no directory")
    for manager in (node.cpus, node.memory):
        manager.book(MIXED, MIXED.init_containers[0], NODE_0)
        with pytest.raises(AllocationRefused, match="not being written"):
            await manager.settle(MIXED)
    assert (node.cpus.state, node.memory.state) == (cpus().initial(), memory().initial())
