"""Eviction order of pods (docs/reference/behaviour.md, p6; behaviour-resources.md, rd)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.structs import replace
from kubeletpy.node.eviction.decide import Amount, Layout, Signal, SignalObservation, Threshold
from kubeletpy.node.eviction.ranking import (
    EARLY_S,
    GARBAGE_S,
    LAYER_S,
    STILL_S,
    Awaited,
    Candidate,
    DiskUse,
    Ranked,
    Reclaim,
    Settling,
    Use,
    begun,
    candidate,
    first_to_go,
    freed_by,
    freed_by_reclaim,
    is_premature,
    is_settled,
    may_be_settling,
    observed,
    rank,
    reclaims,
)
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    GroupKind,
    GroupStats,
    PodDisk,
    PodReading,
    PodRef,
    TreeUse,
    VolumeUse,
)
from kubeletpy.pods.pod import Pod

CONTAINERS, IMAGES = Reclaim.CONTAINERS, Reclaim.IMAGES


def pod(
    uid: str,
    *,
    priority: int = 0,
    memory: int = 0,
    tasks: int = 0,
    disk: DiskUse | None = None,
    critical: bool = False,
    blind: bool = False,
    **requests: int,
) -> Candidate:
    requested = {name.replace("_", "-"): amount for name, amount in requests.items()}
    use = None if blind else Use(memory, tasks, disk or DiskUse())
    return Candidate(uid, f"ns/{uid}", priority, critical, requested, use=use)


def order(signal: Signal, *pods: Candidate, layout: Layout = Layout.ONE) -> list[str]:
    orders = {
        tuple(each.pod.uid for each in rank(some, signal, layout))
        for some in itertools.permutations(pods)
    }
    assert len(orders) == 1, "whatever order they come in"
    return list(orders.pop())


def requested(uid: str, memory_used: int, memory: int, priority: int = 0) -> Candidate:
    return Candidate(uid, f"ns/{uid}", priority, False, {"memory": memory}, use=Use(memory_used))


@pytest.mark.parametrize("signal", [Signal.MEMORY, Signal.ALLOCATABLE_MEMORY])
def test_memory(signal: Signal) -> None:
    assert order(
        signal,
        requested("within-but-lowest", 100, 100, priority=-5),
        requested("little-over", 101, 100),
        requested("much-over", 300, 100),
        requested("over-but-important", 900, 100, priority=7),
        requested("well-within", 10, 100),
        pod("blind", blind=True, priority=100),
    ) == [
        "blind",
        "much-over",
        "little-over",
        "over-but-important",
        "within-but-lowest",
        "well-within",
    ]


def test_among_equals_the_uid_decides() -> None:
    assert order(Signal.MEMORY, pod("b", memory=5), pod("a", memory=5)) == ["a", "b"]
    # a missing request counts as 0
    for requests, other in (("a", "b"), ("b", "a")):
        assert order(Signal.MEMORY, requested(requests, 6, 1), pod(other, memory=5)) == ["a", "b"]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        # the rest of the request decides; among equals, the uid
        ((requested("a", 0, 0), requested("b", 1, 1)), ["a", "b"]),
        ((requested("a", 0, 5), requested("b", 1, 5)), ["b", "a"]),
        ((requested("a", 0, 5), requested("b", 1, 6)), ["a", "b"]),
        ((requested("a", 0, 6), requested("b", 1, 6), requested("c", 2, 7)), ["b", "c", "a"]),
        ((requested("a", 1, 1), requested("b", 2, 1)), ["b", "a"]),
    ],
)
def test_within_their_requests(pods: tuple[Candidate, ...], expected: list[str]) -> None:
    assert order(Signal.MEMORY, *pods) == expected


@pytest.mark.parametrize(("used", "expected"), [((0, 1), ["b", "a"]), ((1, 1), ["a", "b"])])
def test_the_number_of_tasks(used: tuple[int, int], expected: list[str]) -> None:
    assert order(Signal.PIDS, pod("a", tasks=used[0]), pod("b", tasks=used[1])) == expected


def test_tasks_are_by_priority_and_number_alone() -> None:
    assert order(
        Signal.PIDS,
        pod("few", tasks=3, memory=900),
        pod("many", tasks=70),
        pod("important", tasks=5000, priority=1),
        pod("blind-but-important", blind=True, priority=2),
    ) == ["many", "few", "important", "blind-but-important"]


WHERE = {
    "layers": DiskUse(layers=(1000, 10)),
    "logs": DiskUse(logs=(900, 9)),
    "volumes": DiskUse(volumes=(800, 8)),
}


@pytest.mark.parametrize(
    ("signal", "layout", "counted"),
    [
        (Signal.NODEFS, Layout.ONE, ["layers", "logs", "volumes"]),
        (Signal.NODEFS_INODES, Layout.ONE, ["layers", "logs", "volumes"]),
        (Signal.IMAGEFS, Layout.ONE, ["layers", "logs", "volumes"]),
        (Signal.CONTAINERFS, Layout.ONE, ["layers", "logs", "volumes"]),
        (Signal.NODEFS, Layout.APART, ["logs", "volumes"]),
        (Signal.NODEFS_INODES, Layout.APART, ["logs", "volumes"]),
        (Signal.IMAGEFS, Layout.APART, ["layers"]),
        (Signal.IMAGEFS_INODES, Layout.APART, ["layers"]),
        (Signal.CONTAINERFS, Layout.APART, ["layers"]),
        (Signal.NODEFS, Layout.SPLIT, ["layers", "logs", "volumes"]),
        (Signal.CONTAINERFS_INODES, Layout.SPLIT, ["layers", "logs", "volumes"]),
        (Signal.IMAGEFS, Layout.SPLIT, []),
        (Signal.IMAGEFS_INODES, Layout.SPLIT, []),
    ],
)
def test_only_files_on_the_file_system_count(
    signal: Signal, layout: Layout, counted: list[str]
) -> None:
    ranked = rank([pod(name, disk=disk) for name, disk in WHERE.items()], signal, layout)
    assert [each.pod.uid for each in ranked if each.used] == counted


def test_disk_is_by_request_before_priority() -> None:
    big = DiskUse(logs=(500, 5))
    assert order(
        Signal.NODEFS,
        pod("asked-for-it", disk=big, ephemeral_storage=500, priority=-9),
        pod("important", disk=big, priority=5),
        pod("plain", disk=big),
    ) == ["plain", "important", "asked-for-it"]


def test_for_inodes_a_request_for_bytes_ranks_last() -> None:
    assert order(
        Signal.NODEFS_INODES,
        pod("none", disk=DiskUse()),
        pod("asked-for-bytes", disk=DiskUse(logs=(0, 9000)), ephemeral_storage=1 << 30),
        pod("some", disk=DiskUse(logs=(0, 5))),
    ) == ["some", "asked-for-bytes", "none"]


def test_critical_pods_are_passed_over() -> None:
    ranking = rank(
        [pod("critical", memory=90, critical=True), pod("plain", memory=1)],
        Signal.MEMORY,
        Layout.ONE,
    )
    assert ranking[0].pod.uid == "critical"
    chosen = first_to_go(ranking)
    assert chosen is not None
    assert chosen.pod.uid == "plain"
    assert first_to_go(ranking[:1]) is None


@pytest.mark.parametrize(
    ("signal", "layout", "what"),
    [
        (Signal.MEMORY, Layout.ONE, ()),
        (Signal.PIDS, Layout.ONE, ()),
        (Signal.NODEFS, Layout.ONE, (CONTAINERS, IMAGES)),
        (Signal.IMAGEFS_INODES, Layout.ONE, (CONTAINERS, IMAGES)),
        (Signal.NODEFS, Layout.APART, ()),
        (Signal.IMAGEFS, Layout.APART, (CONTAINERS, IMAGES)),
        (Signal.CONTAINERFS, Layout.APART, (CONTAINERS, IMAGES)),
        (Signal.NODEFS_INODES, Layout.SPLIT, (CONTAINERS,)),
        (Signal.CONTAINERFS, Layout.SPLIT, (CONTAINERS,)),
        (Signal.IMAGEFS, Layout.SPLIT, (IMAGES,)),
    ],
)
def test_reclaims_before_evictions(
    signal: Signal, layout: Layout, what: tuple[Reclaim, ...]
) -> None:
    assert reclaims(signal, layout) == what


@given(
    st.lists(
        st.builds(
            lambda uid, **of: pod(str(uid), **of),
            st.integers(0, 10**6),
            priority=st.integers(-2, 2),
            memory=st.integers(0, 5),
            tasks=st.integers(0, 5),
            critical=st.booleans(),
            blind=st.booleans(),
            memory_=st.just(0),
        ),
        max_size=12,
        unique_by=lambda each: each.uid,
    ),
    st.sampled_from(list(Signal)),
    st.sampled_from(list(Layout)),
)
def test_any_pods(pods: list[Candidate], signal: Signal, layout: Layout) -> None:
    ranking = rank(pods, signal, layout)
    assert sorted(each.pod.uid for each in ranking) == sorted(each.uid for each in pods)
    again: list[Any] = rank(list(reversed(pods)), signal, layout)
    assert ranking == again
    chosen = first_to_go(ranking)
    assert (chosen is None) == all(each.critical for each in pods)
    for one, other in itertools.pairwise(ranking):
        if one.used is not None and other.used is None:
            assert signal is Signal.PIDS
            assert one.pod.priority < other.pod.priority


def layer(used: int, at: int | None = 0, inodes: int = 0) -> DiskUse:
    return DiskUse(layers=(used, inodes), layers_at=at)


@pytest.mark.parametrize(
    ("other", "grown", "premature"),
    [
        (pod("b", disk=layer(4)), 4, False),
        (pod("b", disk=layer(4)), 7, True),
        (pod("b", disk=layer(4)), 0, False),
        (pod("b", disk=layer(4, at=20 * 10**9)), 100, False),
        (pod("b", disk=layer(4, at=None)), 100, False),
        (pod("b", disk=layer(4), priority=1), 100, False),
        (pod("b", disk=layer(4), critical=True), 100, False),
        (pod("b", blind=True, critical=True), 100, False),
        (pod("b", disk=layer(4, at=10 * 10**9)), 100, False),
        (pod("b", disk=layer(4, at=10 * 10**9 - 5)), 100, True),
        (pod("b", disk=layer(4), priority=-1, ephemeral_storage=5), 1, False),
        (pod("b", disk=layer(4), priority=-1, ephemeral_storage=5), 2, True),
    ],
)
def test_growth_since_layers_were_measured_may_belong_to_another(
    other: Candidate, grown: int, premature: bool
) -> None:
    pods = [pod("a", disk=layer(10)), other]
    for signal, layout in (
        (Signal.NODEFS, Layout.ONE),
        (Signal.IMAGEFS, Layout.APART),
        (Signal.NODEFS, Layout.SPLIT),
    ):
        chosen = first_to_go(rank(pods, signal, layout))
        assert chosen is not None
        assert chosen.pod.uid == "a"
        found = is_premature(chosen, pods, signal, layout, grown=grown, crossed=10.0)
        assert found is premature
        assert not is_premature(chosen, [], signal, layout, grown=grown, crossed=10.0)
    chosen = first_to_go(rank(pods, Signal.NODEFS, Layout.APART))
    assert chosen is not None
    # no layers on that file system
    assert not is_premature(chosen, pods, Signal.NODEFS, Layout.APART, grown=grown, crossed=10.0)


@pytest.mark.parametrize("where", ["logs", "volumes"])
@pytest.mark.parametrize(("grown", "premature"), [(-5, False), (0, False), (6, False), (7, True)])
def test_growth_may_belong_to_unmeasured_pods(where: str, grown: int, premature: bool) -> None:
    def disk_use(amount: int, *, pending: bool = False) -> DiskUse:
        both = (amount, amount)
        if where == "logs":
            return DiskUse(logs=both, pending=pending)
        return DiskUse(volumes=both, pending=pending)

    measured, pending = pod("a", disk=disk_use(10)), pod("b", disk=disk_use(4, pending=True))
    both = [measured, pending]
    for signal, layout, counts in (
        (Signal.NODEFS, Layout.ONE, True),
        (Signal.IMAGEFS_INODES, Layout.ONE, True),
        (Signal.NODEFS, Layout.APART, True),
        (Signal.NODEFS_INODES, Layout.APART, True),
        (Signal.CONTAINERFS, Layout.SPLIT, True),
        (Signal.CONTAINERFS, Layout.APART, False),
        (Signal.IMAGEFS, Layout.APART, False),
        (Signal.IMAGEFS, Layout.SPLIT, False),
        (Signal.MEMORY, Layout.ONE, False),
        (Signal.PIDS, Layout.ONE, False),
    ):
        chosen = first_to_go(rank(both, signal, layout))
        assert chosen is not None
        assert chosen.pod.uid == "a"
        found = is_premature(chosen, both, signal, layout, grown=grown, crossed=10.0)
        assert found is (premature and counts), (signal, layout)
        chosen = first_to_go(rank([pending, pod("c")], signal, layout))
        assert chosen is not None
        alone = is_premature(chosen, [pending], signal, layout, grown=grown, crossed=10.0)
        assert not alone, "whoever is first anyway"


@pytest.mark.parametrize(
    ("signal", "grown", "premature"),
    [
        (Signal.NODEFS, 4, False),
        (Signal.NODEFS, 6, True),
        (Signal.NODEFS_INODES, 48, False),
        (Signal.NODEFS_INODES, 50, True),
        (Signal.IMAGEFS_INODES, 48, False),
        (Signal.MEMORY, 10**6, False),
        (Signal.PIDS, 10**6, False),
    ],
)
def test_bytes_and_inodes_are_counted_apart(signal: Signal, grown: int, premature: bool) -> None:
    first = pod("a", disk=DiskUse(layers=(1005, 50), layers_at=0))
    other = pod("b", disk=DiskUse(layers=(1000, 1), layers_at=0))
    (chosen, _) = rank([first, other], Signal.NODEFS, Layout.ONE)
    assert chosen.pod is first
    assert (
        is_premature(chosen, [first, other], signal, Layout.ONE, grown=grown, crossed=9.0)
        is premature
    )


# Resource use of a running pod from its readings; missing readings stay unknown.


def pod_use_pod(**spec: Any) -> Pod:
    meta = {"name": "p", "namespace": "d", "uid": "u"}
    full = {"containers": [{"name": "a"}, {"name": "b"}], **spec}
    return Pod({"metadata": meta, "spec": full})  # type: ignore[typeddict-item]


def tree(used: int | None, inodes: int | None) -> TreeUse:
    return TreeUse(0, used, inodes)


def container(name: str, stats: GroupStats | None, layer: TreeUse | None = None) -> CgroupUsage:
    return CgroupUsage(GroupKind.CONTAINER, stats, name=name, layer=layer)


def reading(
    *containers: CgroupUsage, whole: GroupStats | None = None, processes: int | None = None
) -> PodReading:
    group = CgroupUsage(GroupKind.POD, whole)
    return PodReading(PodRef("u", "p", "d"), group, None, containers, processes=processes)


def used(found: PodReading, disk: PodDisk | None = None) -> Any:
    return candidate(pod_use_pod(), found, disk).use


def test_a_pod_that_does_not_run_has_no_use() -> None:
    assert candidate(pod_use_pod(), None, None).use is None
    assert candidate(pod_use_pod(), reading(), None).use is None


@pytest.mark.parametrize(("priority", "expected"), [(None, 0), (5, 5), (-5, -5)])
def test_the_priority(priority: int | None, expected: int) -> None:
    assert candidate(pod_use_pod(priority=priority), None, None).priority == expected


PAIR = (
    container("a", GroupStats(working_set=3, pids=2)),
    container("b", GroupStats(working_set=4, pids=None)),
    container("c", None),
)


@pytest.mark.parametrize(
    ("found", "memory", "tasks"),
    [
        (reading(*PAIR), 7, 2),
        (reading(*PAIR, whole=GroupStats(working_set=9)), 9, 2),
        (reading(*PAIR, whole=GroupStats(working_set=0, pids=0)), 0, 0),
        (reading(*PAIR, whole=GroupStats(pids=8), processes=5), 7, 8),
        (reading(PAIR[1], processes=5), 4, 5),
        (reading(PAIR[1]), 4, 0),
        (reading(container("a", GroupStats())), 0, 0),
        (reading(PAIR[2], processes=5), 0, 5),
    ],
)
def test_memory_and_tasks(found: PodReading, memory: int, tasks: int) -> None:
    use = used(found)
    assert (use.memory, use.tasks) == (memory, tasks)


def test_disk() -> None:
    disk = PodDisk(
        volumes=(
            VolumeUse("e", tree(100, 1), ephemeral=True),
            VolumeUse("f", tree(None, None), ephemeral=True),
            VolumeUse("c", tree(1000, 10), ephemeral=False),
        ),
        logs={"a": tree(7, 2), "x": tree(1, 1)},
        others=(tree(20, 5),),
    )
    found = reading(
        container("a", None, tree(30, 3)),
        container("b", None, tree(4, None)),
        container("d", None, None),
    )
    use = used(found, disk)
    assert use.disk.layers == (34, 3)
    assert use.disk.layers_at == tree(30, 3).at
    assert used(reading(container("d", None, None))).disk.layers_at is None
    new = replace(tree(0, 0), uncounted=True)
    assert (
        used(reading(container("a", None, tree(30, 3)), container("n", None, new))).disk.layers_at
        == 0
    )
    assert use.disk.logs == (28, 8)
    assert use.disk.volumes == (100, 1)
    # messages name containers of the spec, where both numbers are known
    assert [(c.name, c.storage) for c in use.containers] == [("a", 37), ("b", None)]
    assert not use.disk.pending
    assert used(found, replace(disk, pending=True)).disk.pending
    without = used(found)
    assert (without.disk.logs, without.disk.volumes) == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("logs", "layer", "storage"),
    [
        (tree(1, 1), tree(2, 2), 3),
        (tree(None, 1), tree(2, 2), 2),
        (None, tree(2, 2), None),
        (tree(1, 1), None, None),
    ],
)
def test_storage_of_a_container(logs: Any, layer: Any, storage: int | None) -> None:
    disk = PodDisk(logs={} if logs is None else {"a": logs})
    (found,) = used(reading(container("a", GroupStats(working_set=5), layer)), disk).containers
    assert (found.storage, found.memory) == (storage, 5)


@pytest.mark.parametrize(
    ("layers", "at"),
    [
        ([], None),
        ([TreeUse(7, 1, 1)], 7),
        ([TreeUse(7, 1, 1), TreeUse(5, 1, 1), TreeUse(6, 1, 1)], 5),
        ([TreeUse(7, 1, 1), TreeUse(8, None, None, uncounted=True)], 0),
        ([TreeUse(8, None, None, uncounted=True)], 0),
    ],
)
def test_layers_are_as_old_as_the_oldest(layers: list[TreeUse], at: int | None) -> None:
    found = used(reading(*(container(str(i), None, layer) for i, layer in enumerate(layers)),
                         container("x", None)))  # fmt: skip
    assert found.disk.layers_at == at


def test_missing_fields_default_to_zero() -> None:
    nothing = DiskUse((0, 0), (0, 0), (0, 0), None, pending=False)
    assert Use() == Use(memory=0, tasks=0, disk=nothing, containers=())


# Tables: when a disk is judged again after an eviction or a reclaim.

BYTES = Threshold(Signal.IMAGEFS, Amount(100))
MORE = Threshold(Signal.IMAGEFS, Amount(100), reclaim=Amount(50))
DISK = DiskUse(layers=(40, 4), logs=(20, 2), volumes=(10, 1), layers_at=7)


def seen(available: int) -> SignalObservation:
    return SignalObservation(available, 1000, 0.0)


@pytest.mark.parametrize(
    ("signal", "layout", "counted"),
    [
        (Signal.IMAGEFS, Layout.ONE, 50),
        (Signal.NODEFS, Layout.ONE, 50),
        (Signal.NODEFS_INODES, Layout.ONE, 5),
        (Signal.CONTAINERFS, Layout.ONE, 50),
        (Signal.IMAGEFS, Layout.APART, 40),
        (Signal.IMAGEFS_INODES, Layout.APART, 4),
        (Signal.CONTAINERFS_INODES, Layout.APART, 4),
        (Signal.NODEFS, Layout.APART, None),
        (Signal.NODEFS, Layout.SPLIT, 50),
        (Signal.CONTAINERFS, Layout.SPLIT, 50),
        (Signal.IMAGEFS, Layout.SPLIT, None),
    ],
)
def test_space_that_the_runtime_frees_after_a_pod(
    signal: Signal, layout: Layout, counted: int | None
) -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=Use(disk=DISK)), 0, 0)
    threshold = Threshold(signal, Amount(100))
    expected = None if counted is None else Awaited(threshold, counted, 3, LAYER_S)
    assert freed_by(pod, threshold, layout, 3) == expected


@pytest.mark.parametrize("use", [None, Use(disk=DiskUse(layers=(1, 1), layers_at=0))])
def test_unmeasured_layers_are_unknown(use: Use | None) -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=use), None, 0)
    assert freed_by(pod, BYTES, Layout.APART, 3) == Awaited(BYTES, None, 0, LAYER_S)


def test_evictions_of_an_earlier_agent_are_awaited() -> None:
    assert may_be_settling(LAYER_S - 0.1)
    assert not may_be_settling(LAYER_S)
    assert freed_by_reclaim(BYTES, EARLY_S - 0.1) == Awaited(BYTES, patience=LAYER_S)
    assert freed_by_reclaim(BYTES, EARLY_S) == Awaited(BYTES, patience=GARBAGE_S)


def test_growth_is_never_negative() -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=Use(disk=DISK)), 0, 0)
    assert freed_by(pod, BYTES, Layout.APART, -3) == Awaited(BYTES, 40, 0, LAYER_S)


@pytest.mark.parametrize(
    ("awaited", "least", "still_for", "available", "settled"),
    [
        # the node is well
        (Awaited(BYTES), 50, 0.0, 100, True),
        (Awaited(MORE), 50, 0.0, 149, False),
        (Awaited(MORE), 50, 0.0, 150, True),
        # it is well by what others freed; what is still to come may be needed again
        (Awaited(BYTES, 50, 0, LAYER_S), 100, LAYER_S - 0.1, 120, False),
        (Awaited(BYTES, 50, 0, LAYER_S), 100, LAYER_S, 120, True),
        (Awaited(BYTES, 50, 0, LAYER_S), 100, STILL_S, 145, True),
        # the size of garbage is unknown
        (Awaited(BYTES), 50, GARBAGE_S - 0.1, 50, False),
        (Awaited(BYTES), 50, GARBAGE_S, 50, True),
        # a layer that would suffice has freed nothing
        (Awaited(BYTES, 50, 0, LAYER_S), 50, LAYER_S - 0.1, 50, False),
        (Awaited(BYTES, 50, 0, LAYER_S), 50, LAYER_S, 50, True),
        # it would not suffice, except with what was written since the measurement
        (Awaited(BYTES, 49, 0, LAYER_S), 50, 0.0, 50, True),
        (Awaited(BYTES, 30, 19, LAYER_S), 50, 0.0, 50, True),
        (Awaited(BYTES, 30, 20, LAYER_S), 50, 0.0, 50, False),
        # freed space is not freed again
        (Awaited(BYTES, 60, 0, LAYER_S), 30, 0.0, 50, True),
        (Awaited(BYTES, 70, 0, LAYER_S), 30, 0.0, 50, False),
        (Awaited(BYTES, 10, 0, LAYER_S), 40, 0.0, 99, True),
        # most of what was measured is freed: the disk is still only for a moment
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S - 0.1, 49, False),
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S, 49, True),
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S, 48, False),
        (Awaited(BYTES, None, 0, LAYER_S), 40, STILL_S, 90, False),
    ],
)
def test_whether_the_disk_is_judged(
    awaited: Awaited, least: int, still_for: float, available: int, settled: bool
) -> None:
    state = Settling(awaited, least, 0, available, still_since=5.0)
    assert is_settled(state, 1000, 5.0 + still_for) is settled


def test_the_disk_is_still_since_its_last_certain_growth() -> None:
    state = begun(Awaited(BYTES), seen(50), 1.0)
    assert state == Settling(Awaited(BYTES), 50, 50, 50, 1.0)
    looks = [
        (40, Settling(Awaited(BYTES), 50, 40, 40, 1.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 40, 1.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 41, 4.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 41, 4.0)),
    ]
    for now, (available, expected) in enumerate(looks, 2):
        state = observed(state, seen(available), float(now))
        assert state == expected


@pytest.mark.parametrize("wrong", [0, 1000])
def test_one_wrong_observation_settles_nothing(wrong: int) -> None:
    state = begun(Awaited(BYTES, 60, 0, LAYER_S), seen(50), 1.0)
    for now, available in enumerate([50, wrong, 50, 50, 50], 2):
        state = observed(state, seen(available), float(now))
        assert not is_settled(state, 1000, float(now))
    state = observed(observed(state, seen(110), 7.0), seen(110), 7.2)
    assert not is_settled(state, 1000, 7.2 + STILL_S - 0.01)
    assert is_settled(state, 1000, 7.2 + STILL_S)
