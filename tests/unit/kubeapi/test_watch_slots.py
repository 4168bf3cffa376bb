"""Watch slots of pods, and their transfer when a pod has ended."""

from __future__ import annotations

from kubeletpy.kubeapi.watch_state import WatchSlots


def test_each_pod_has_its_own_slots() -> None:
    slots = WatchSlots(pod=2)
    assert [slots.acquire(n, ["a"], 4) for n in range(3)] == [True, True, False]
    assert slots.acquire(0, ["a"], 4), "what has a slot keeps it"
    assert slots.acquire(2, ["a", "b"], 4), "b has room"
    assert slots.acquire(3, ["b"], 4)
    assert not slots.acquire(4, ["c"], 4), "the node is full"
    assert slots.acquire(0, ["a"], 3), (
        "what has a slot keeps it, though the node may have fewer now"
    )
    slots.give_back(0)
    assert not slots.acquire(4, ["c"], 3)
    assert slots.acquire(4, ["c"], 4)
    assert len(slots) == 4


def test_a_shared_watch_continues_for_the_remaining_pods() -> None:
    slots = WatchSlots(pod=1)
    assert slots.acquire("x", ["a", "b"])
    slots.pass_on("x", "b", ["a"])
    assert not slots.acquire("y", ["a"]), "it is still a's"
    slots.pass_on("x", "a", ["b"])
    assert slots.acquire("y", ["a"])
    assert not slots.acquire("z", ["b"])
    slots.pass_on("x", "b", [])
    assert slots.acquire("z", ["b"])


def test_slots_are_returned_one_by_one() -> None:
    slots = WatchSlots(pod=2)
    assert slots.acquire(0, ["a"])
    assert slots.acquire(1, ["a"])
    slots.give_back(0)
    assert slots.acquire(2, ["a"])
    assert not slots.acquire(3, ["a"])
    for watch in (0, 1, 2):
        slots.give_back(watch)
    assert not slots._counts, "nothing is kept of a pod that has none"
