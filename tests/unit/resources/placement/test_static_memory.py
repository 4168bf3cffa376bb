"""memoryManagerPolicy Static: the NUMA nodes from which containers get memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.config.settings import MemoryReservation
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.managers import MemoryManager
from kubeletpy.resources.placement.model import (
    NOT_PREFERRED,
    AllocationRefused,
    Hint,
    NumaNode,
    peak_memory_requests,
    requested_memory,
)
from kubeletpy.resources.placement.options import OptionError, empty_nodes, huge_name
from kubeletpy.resources.placement.state import (
    Block,
    MemoryState,
    NodeMemory,
    Table,
    read_memory_state,
    write_memory_state,
)
from kubeletpy.resources.placement.static_manager import StateUnusable
from kubeletpy.resources.placement.static_memory import StaticMemory, shrunk
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.kit.machines import pod_of, sized

pytestmark = pytest.mark.virtual_time

ALWAYS = {"restartPolicy": "Always"}


def of_nodes(count: int = 2, each: int = 100) -> StaticMemory:
    table = Table(each + 10, 10, each, 0, each)
    return StaticMemory({n: NodeMemory(0, {"memory": table}, (n,)) for n in range(count)})


TWO = of_nodes()


def requesting(memory: int, uid: str = "uid-1", init: tuple[Any, ...] = ()) -> Pod:
    return pod_of(sized("c", memory=str(memory)), uid=uid, initContainers=list(init))


def allocate(of: StaticMemory, state: MemoryState, pod: Pod, hint: Any = None) -> MemoryState:
    for container in (*pod.init_containers, *pod.containers):
        state = of.allocate(state, pod, container, hint or NOT_PREFERRED)
        assert of.problem(state) == "", "a restart goes on with it"
        assert read_memory_state(write_memory_state(state)) == state
    return state


def free(state: MemoryState) -> list[int]:
    return [node.tables["memory"].free for node in state.nodes.values()]


def masks(of: StaticMemory, state: MemoryState, pod: Pod, whole: bool = False) -> Any:
    found = of.hints(state, pod, None if whole else pod.containers[0])["memory"]
    return [(hint.mask, hint.preferred) for hint in found or ()]


def test_requests_for_which_memory_is_booked() -> None:
    pod = pod_of(sized("c", memory="1Ki"))
    assert requested_memory(pod, pod.containers[0]) == {"memory": 1024}
    pod = pod_of(sized("c", cpu=None, memory="1Ki"))
    assert requested_memory(pod, pod.containers[0]) == {}
    init = [sized("i", memory="5"), sized("s", memory="2", **ALWAYS), sized("j", memory="4")]
    assert peak_memory_requests(requesting(3, init=tuple(init))) == {"memory": 6}


def test_a_node_alone_or_a_group_and_never_both() -> None:
    state = TWO.initial()
    assert masks(TWO, state, requesting(60)) == [(1, True), (2, True), (3, False)]
    assert masks(TWO, state, requesting(100)) == [(1, True), (2, True), (3, False)]
    assert masks(TWO, state, requesting(150)) == [(3, True)]
    one = allocate(TWO, state, requesting(60))
    assert free(one) == [40, 100]
    assert masks(TWO, one, requesting(60, "b")) == [(2, True)]
    assert masks(TWO, one, requesting(150, "b")) == []
    both = allocate(TWO, state, requesting(150))
    assert free(both) == [0, 50]
    assert masks(TWO, both, requesting(10, "b")) == [(3, False)]
    with pytest.raises(AllocationRefused, match="default preferred hint"):
        TWO.allocate(both, requesting(10, "b"), requesting(10, "b").containers[0], Hint(None, True))


def test_a_hint_that_is_too_small_is_widened() -> None:
    state = allocate(TWO, TWO.initial(), requesting(150), Hint(1, False))
    assert free(state) == [0, 50]
    used = allocate(TWO, TWO.initial(), requesting(90))
    with pytest.raises(AllocationRefused, match="NUMA nodes to extend"):
        allocate(TWO, used, requesting(20, "b"), Hint(1, True))


def test_no_memory_left() -> None:
    with pytest.raises(AllocationRefused, match="no NUMA nodes with enough memory"):
        allocate(TWO, TWO.initial(), requesting(201))


def test_later_containers_have_the_memory_of_init_containers() -> None:
    init = (sized("i", memory="50"), sized("j", memory="30"))
    state = allocate(TWO, TWO.initial(), requesting(40, init=init))
    assert free(state) == [50, 100], "never more than the largest at once"
    assert TWO.without_all_but(state, ()).nodes == TWO.nodes
    larger = allocate(TWO, TWO.initial(), requesting(80, init=init))
    assert free(larger) == [20, 100]


def test_sidecars_keep_theirs() -> None:
    init = (sized("s", memory="20", **ALWAYS), sized("i", memory="30"))
    assert free(allocate(TWO, TWO.initial(), requesting(40, init=init))) == [40, 100]


def test_after_a_restart_nothing_moves() -> None:
    init = (sized("i", memory="50"), sized("j", memory="30"))
    pod = requesting(40, init=init)
    state = allocate(TWO, TWO.initial(), pod)
    assert allocate(TWO, state, pod) is state
    for container in (*pod.init_containers, *pod.containers):
        assert TWO.hints(state, pod, container)["memory"] == (Hint(1, True),)
    assert masks(TWO, state, pod, whole=True) == [(1, True)]
    apart = TWO.allocate(TWO.initial(), pod, init[0], Hint(2, True))
    apart = TWO.allocate(apart, pod, pod.containers[0], Hint(1, True))
    assert TWO.hints(apart, pod, None) == {"memory": None}, "it has no single place to stay at"


def test_a_pod_gets_the_hints_of_a_container_of_its_size() -> None:
    assert masks(TWO, TWO.initial(), requesting(60), whole=True) == [
        (1, True),
        (2, True),
        (3, False),
    ]


@pytest.mark.parametrize(
    ("memory", "pages", "offered"),
    [("60", None, True), ("59", None, False), ("61", None, False), ("60", "4", False)],
)
def test_a_booking_is_offered_for_the_same_request_only(
    memory: str, pages: str | None, offered: bool
) -> None:
    state = allocate(TWO, TWO.initial(), requesting(60), Hint(2, True))
    now = sized("c", memory=memory)
    if pages is not None:
        for amounts in now["resources"].values():
            amounts["hugepages-2Mi"] = pages
    hints = TWO.hints(state, pod_of(now), now)
    assert hints == ({"memory": (Hint(2, True),)} if offered else {})


def test_an_init_container_gets_hints_for_its_booked_types_only() -> None:
    init = (sized("i", memory="50"),)
    state = allocate(TWO, TWO.initial(), requesting(40, init=init), Hint(2, True))
    pod = requesting(40, init=init)
    assert TWO.hints(state, pod, init[0]) == {"memory": (Hint(2, True),)}
    for amounts in init[0]["resources"].values():
        amounts["hugepages-2Mi"] = "4"
    assert TWO.hints(state, pod, init[0]) == {}


def test_memory_of_a_type_that_a_later_container_does_not_use_stays_booked() -> None:
    pages, memory = Block((0,), "hugepages-2Mi", 4), Block((0,), "memory", 50)
    state = replace(TWO.initial(), entries={"uid-1": {"i": (pages, memory), "j": (pages,)}})
    pod = requesting(30, init=(sized("i"), sized("j")))
    assert shrunk(state, pod, "c", [Block((0,), "memory", 30)]) == {
        "i": (pages, Block((0,), "memory", 20)),
        "j": (pages,),
    }
    first = shrunk(state, pod, "i", [Block((0,), "memory", 30)])
    assert first == state.entries["uid-1"], "nothing before it"


@pytest.mark.parametrize("seed", range(100))
def test_no_memory_is_lost_while_pods_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    of = of_nodes(rng.randint(1, 4))
    state, there = of.initial(), list[Pod]()
    for number in range(12):
        init = tuple(
            sized(f"i{n}", memory=str(rng.randint(1, 90)), **rng.choice([{}, ALWAYS]))
            for n in range(rng.randint(0, 3))
        )
        pod = requesting(rng.randint(1, 130), f"uid-{number}", init)
        before = state
        try:
            state = allocate(of, state, pod)
            there.append(pod)
        except AllocationRefused:
            state = of.without_all_but(before, {each.uid for each in there})
        if there and rng.random() < 0.4:
            there.remove(rng.choice(there))
            state = of.without_all_but(state, {each.uid for each in there})
        assert of.problem(state) == ""
        blocks = [b for of_pod in state.entries.values() for held in of_pod.values() for b in held]
        booked = sum(block.size for block in blocks)
        assert sum(free(state)) == 100 * len(of.nodes) - booked
        # more is free where a later container is not on the nodes of an init container
        assert booked >= sum(peak_memory_requests(each)["memory"] for each in there)
    assert of.without_all_but(state, ()).nodes == of.nodes


def with_first(cells: tuple[int, ...], tables: dict[str, Table]) -> MemoryState:
    """The initial state, with changes to node 0 only."""
    state = TWO.initial()
    node = NodeMemory(0, {**state.nodes[0].tables, **tables}, cells)
    return replace(state, nodes={**state.nodes, 0: node})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (MemoryState("Static"), ""),
        (MemoryState("Static", {}, {"a": {"c": ()}}), "assignments and no NUMA nodes"),
        (of_nodes(1).initial(), "with the NUMA nodes [0], not [0, 1]"),
        (of_nodes(2, 90).initial(), "memory of NUMA node 0, or what is reserved of it, has"),
        (
            MemoryState("Static", allocate(TWO, TWO.initial(), requesting(9)).nodes),
            "assignments of",
        ),
        (with_first((0, 1), {}), "the assignments of NUMA node 0 are not those"),
        (with_first((0,), {"hugepages-2Mi": Table()}), "NUMA node 0 has other types of memory"),
        (
            with_first((0,), {"memory": Table(110, 10, 100, 0, 90)}),
            "free memory of NUMA node 0 is not what",
        ),
        (
            with_first((0,), {"memory": Table(110, 10, 100, 5, 100)}),
            "reserved memory of NUMA node 0 is not",
        ),
    ],
)
def test_states_to_go_on_with(state: MemoryState, why: str) -> None:
    assert why in TWO.problem(state)
    assert bool(why) == bool(TWO.problem(state))


MI = 1 << 20


def reserving(**limits: str) -> list[MemoryReservation]:
    return [MemoryReservation(0, {k.replace("_", "-"): v for k, v in limits.items()})]


def test_nodes_with_what_is_reserved() -> None:
    machine = {0: NumaNode(100 * MI, {2 * MI: 20 * MI}), 1: NumaNode(100 * MI)}
    nodes = empty_nodes(machine, reserving(memory="10Mi"), {"memory": 10 * MI})
    assert nodes[0].tables == {
        "hugepages-2Mi": Table(20 * MI, 0, 20 * MI, 0, 20 * MI),
        "memory": Table(100 * MI, 10 * MI, 70 * MI, 0, 70 * MI),
    }
    table = Table(100 * MI, 0, 100 * MI, 0, 100 * MI)
    assert nodes[1] == NodeMemory(0, {"memory": table}, (1,))
    more = empty_nodes({0: NumaNode(5 * MI)}, reserving(memory="10Mi"), {"memory": 10 * MI})
    assert more[0].tables == {"memory": Table(5 * MI, 10 * MI, 0, 0, 0)}


@pytest.mark.parametrize(
    ("reservations", "total", "why"),
    [
        ([MemoryReservation(7, {"memory": "1"})], {"memory": 1}, "no NUMA node 7"),
        (reserving(memory="10Mi"), {"memory": 11}, "must be the 11 that"),
        (reserving(memory="1"), {"memory": 1, "hugepages-2Mi": 1}, "-2Mi .* is 0 bytes together"),
        (reserving(memory="1", hugepages_2Mi="1"), {"memory": 1}, "it must be the 0 that"),
        (reserving(hugepages_2Mi="2Mi"), {"hugepages-2Mi": 2 * MI}, "needs memory to be reserved"),
    ],
)
def test_reservations_that_cannot_be(
    reservations: list[MemoryReservation], total: dict[str, int], why: str
) -> None:
    with pytest.raises(OptionError, match=why):
        empty_nodes({0: NumaNode(100 * MI)}, reservations, total)


def test_no_pages_of_a_size_need_no_reservation() -> None:
    one = {0: NumaNode(100 * MI)}
    for total in ({"memory": MI}, {"memory": MI, "hugepages-2Mi": 0}):
        for each in (reserving(memory="1Mi"), reserving(memory="1Mi", hugepages_2Mi="0")):
            assert empty_nodes(one, each, total)[0].tables["memory"].system_reserved == MI


def test_names_of_huge_pages() -> None:
    assert [huge_name(size) for size in (64 << 10, 2 << 20, 1 << 30)] == [
        "hugepages-64Ki",
        "hugepages-2Mi",
        "hugepages-1Gi",
    ]


async def test_bookings_outlive_the_agent(tmp_path: Path) -> None:
    metrics = Metrics().placement
    first = MemoryManager(TWO, tmp_path, metrics)
    await first.start()
    pod = requesting(60)
    assert first.book(pod, pod.containers[0], Hint(2, True))
    await first.settle(pod)
    supplied = ContainerAdditions(EnvironmentInputs())
    made = await first.provide(pod, pod.containers[0], supplied)
    assert made.placement.cpuset_mems == "1"
    second = MemoryManager(TWO, tmp_path, metrics)
    await second.start()
    assert second.state == first.state
    second.release(())
    await second.close()
    third = MemoryManager(TWO, tmp_path, metrics)
    await third.start()
    assert third.state == TWO.initial()
    with pytest.raises(StateUnusable, match='memoryManagerPolicy is "None"'):
        await MemoryManager(None, tmp_path, metrics).start()
    with pytest.raises(StateUnusable, match="memory_manager_state can't be used"):
        await MemoryManager(of_nodes(1), tmp_path, metrics).start()


async def test_a_booking_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    of = MemoryManager(TWO, tmp_path / "root", Metrics().placement)
    await of.start()
    (tmp_path / "root/memory_manager_state").unlink()
    (tmp_path / "root").rmdir()
    (tmp_path / "root").write_text("no directory")
    pod = requesting(60)
    assert of.book(pod, pod.containers[0], NOT_PREFERRED)
    with pytest.raises(AllocationRefused, match="memory_manager_state not being written"):
        await of.settle(pod)
    assert of.state == TWO.initial()
