"""Eviction order as text."""

from __future__ import annotations

from msgspec import to_builtins

from kubeletpy.base.structs import replace
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.node.eviction.report import EvictionOrder, Next, RankingEntry
from kubeletpy.observe.explain.render import orders

MI = 1 << 20
PLACE = RankingEntry("ns", "a", "u", 0, False, 30 * MI, 10 * MI, True)


def reported(order: EvictionOrder) -> list[str]:
    head, *lines = orders([to_builtins(order)]).splitlines()
    assert head == "Eviction order"
    return [line.strip() for line in lines]


def test_an_order() -> None:
    unknown = replace(PLACE, name="b\n\x1b[1m", used=None, over=False)
    within = replace(PLACE, name="c", used=5 * MI, over=False, priority=7)
    pods = (Next(1, unknown), Next(2, PLACE), Next(12, within, requested=True))
    both = (Reclaim.CONTAINERS, Reclaim.IMAGES)
    assert reported(EvictionOrder((Signal.NODEFS, Signal.IMAGEFS), True, both, pods, 14, 2)) == [
        "nodefs.available, imagefs.available (short of it now)",
        "nobody, if removing unused containers and unused images is enough",
        "1. ns/b [1m: priority 0; what it uses is not known",
        "2. ns/a: priority 0, uses 30.0 MiB, more than its request of 10.0 MiB",
        "…",
        "12. ns/c: this pod, priority 7, uses 5.0 MiB, within its request of 10.0 MiB",
        "… of 14",
        "2 critical or static pods stay",
    ]


def test_a_new_pod_and_its_position_above_its_request() -> None:
    new = Next(1, replace(PLACE, used=10 * MI, over=False), requested=True, assumed=True)
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (new,), 1, 1, beyond=1)) == [
        "memory.available (enough now)",
        "1. ns/a: this pod, priority 0, if it uses the 10.0 MiB that it requests",
        "once it uses more than it requests, this pod is number 1",
        "1 critical or static pod stays",
    ]


def test_a_new_pod_without_requests() -> None:
    new = Next(1, replace(PLACE, used=1, request=0), requested=True, assumed=True)
    _, line = reported(EvictionOrder((Signal.MEMORY,), False, (), (new,), 1, 0))
    assert line == "1. ns/a: this pod, priority 0; it requests none, so all usage counts as excess"


def test_tasks_are_not_requested() -> None:
    new = Next(2, replace(PLACE, used=1), requested=True, assumed=True)
    order = EvictionOrder((Signal.PIDS,), False, (), (Next(1, replace(PLACE, used=40)), new), 2, 0)
    assert reported(order)[1:] == [
        "1. ns/a: priority 0, 40 tasks",
        "2. ns/a: this pod, priority 0, with one task",
    ]


def test_a_critical_pod_and_an_empty_order() -> None:
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0, requested_stays=True))[
        1:
    ] == ["this pod is critical or static: it stays"]
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0))[1:] == [
        "no pod can be evicted"
    ]
    assert orders([]) == ""
