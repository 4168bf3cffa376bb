"""Eviction order of pods (docs/reference/behaviour.md, p6; behaviour-resources.md, rd)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.node.eviction.decide import Layout, Signal
from kubeletpy.node.eviction.ranking import (
    Candidate,
    DiskUse,
    Reclaim,
    Use,
    first_to_go,
    is_premature,
    rank,
    reclaims,
)

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
