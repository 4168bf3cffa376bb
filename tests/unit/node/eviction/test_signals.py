"""Condition, resource and reclaims of each signal, and which numbers are accepted."""

from __future__ import annotations

import pytest

from kubeletpy.node.eviction.decide import (
    DISK,
    ORDER,
    Condition,
    Doubt,
    Layout,
    Signal,
    SignalObservation,
    believable,
    condition_of,
    layout_of,
    resource_of,
)
from kubeletpy.node.eviction.ranking import Reclaim, counts_layers, reclaims

BOTH, IMAGES, LAYERS = "containers images", "images", "containers"
# signal: condition, resource, and reclaims where both are on one disk, apart, split
SIGNALS = {
    Signal.MEMORY: ("MemoryPressure", "memory", "", "", ""),
    Signal.ALLOCATABLE_MEMORY: ("MemoryPressure", "memory", "", "", ""),
    Signal.NODEFS: ("DiskPressure", "ephemeral-storage", BOTH, "", LAYERS),
    Signal.NODEFS_INODES: ("DiskPressure", "inodes", BOTH, "", LAYERS),
    Signal.IMAGEFS: ("DiskPressure", "ephemeral-storage", BOTH, BOTH, IMAGES),
    Signal.IMAGEFS_INODES: ("DiskPressure", "inodes", BOTH, BOTH, IMAGES),
    Signal.CONTAINERFS: ("DiskPressure", "ephemeral-storage", BOTH, BOTH, LAYERS),
    Signal.CONTAINERFS_INODES: ("DiskPressure", "inodes", BOTH, BOTH, LAYERS),
    Signal.PIDS: ("PIDPressure", "pids", "", "", ""),
}


@pytest.mark.parametrize("signal", Signal)
def test_condition_resource_and_reclaims_of_a_signal(signal: Signal) -> None:
    condition, resource, *helps = SIGNALS[signal]
    assert condition_of(signal) is Condition(condition)
    assert resource_of(signal) == resource
    assert (signal in DISK) == (condition == "DiskPressure")
    for layout, parts in zip((Layout.ONE, Layout.APART, Layout.SPLIT), helps, strict=True):
        expected = tuple(Reclaim(word) for word in parts.split())
        assert reclaims(signal, layout) == expected
        if signal in DISK:
            assert counts_layers(signal, layout) == (Reclaim.CONTAINERS in expected)


def test_memory_comes_first_and_tasks_last() -> None:
    assert sorted(Signal, key=ORDER.__getitem__) == list(SIGNALS)


@pytest.mark.parametrize(
    ("node", "images", "layers", "expected"),
    [
        (1, 1, 1, Layout.ONE),
        (1, 1, 2, Layout.ONE),
        (1, 2, 2, Layout.APART),
        (1, 2, 3, Layout.APART),
        (1, 2, 1, Layout.SPLIT),
    ],
)
def test_where_images_and_layers_are(node: int, images: int, layers: int, expected: Layout) -> None:
    assert layout_of(node, images, layers) is expected


@pytest.mark.parametrize(
    ("available", "capacity", "at", "doubt"),
    [
        (0, 1, 100.0, None),
        (1, 1, 100.0, None),
        (-1, 1, 100.0, Doubt.NEGATIVE),
        (0, 0, 100.0, Doubt.NO_CAPACITY),
        (0, -1, 100.0, Doubt.NO_CAPACITY),
        (2, 1, 100.0, Doubt.TOO_MUCH),
        (0, 1, 100.1, Doubt.AHEAD),
        (0, 1, 85.0, None),
        (0, 1, 84.9, Doubt.STALE),
    ],
)
def test_impossible_numbers_are_not_accepted(
    available: int, capacity: int, at: float, doubt: Doubt | None
) -> None:
    fine = SignalObservation(5, 10, 100.0)
    supplied = SignalObservation(available, capacity, at)
    seen = believable({Signal.MEMORY: supplied, Signal.PIDS: fine}, 100.0)
    if doubt is None:
        assert (seen.observations, seen.doubts) == (
            {Signal.MEMORY: supplied, Signal.PIDS: fine},
            {},
        )
    else:
        assert (seen.observations, seen.doubts) == ({Signal.PIDS: fine}, {Signal.MEMORY: doubt})
