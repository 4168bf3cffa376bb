"""The signals that are watched on a node, and their observations. Pure.

Source: docs/reference/behaviour.md, p4; docs/reference/behaviour-resources.md, ra.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kubeletpy.base.structs import Struct, field

STALE_S = 15.0
"""An older number no longer counts: a file system may have kept us waiting."""


class Signal(StrEnum):
    """The API's names, in the order in which they are acted on: memory runs out fastest."""

    MEMORY = "memory.available"
    ALLOCATABLE_MEMORY = "allocatableMemory.available"
    NODEFS = "nodefs.available"
    NODEFS_INODES = "nodefs.inodesFree"
    IMAGEFS = "imagefs.available"
    IMAGEFS_INODES = "imagefs.inodesFree"
    CONTAINERFS = "containerfs.available"
    CONTAINERFS_INODES = "containerfs.inodesFree"
    PIDS = "pid.available"


ORDER = {signal: place for place, signal in enumerate(Signal)}
MEMORY = frozenset({Signal.MEMORY, Signal.ALLOCATABLE_MEMORY})
INODES = frozenset({Signal.NODEFS_INODES, Signal.IMAGEFS_INODES, Signal.CONTAINERFS_INODES})
CONTAINER_FS = frozenset({Signal.CONTAINERFS, Signal.CONTAINERFS_INODES})
DISK = frozenset(Signal) - MEMORY - {Signal.PIDS}


class Condition(StrEnum):
    """The node's conditions."""

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


def condition_of(signal: Signal) -> Condition:
    """The condition that a signal below its threshold makes true."""
    if signal in MEMORY:
        return Condition.MEMORY
    return Condition.PID if signal is Signal.PIDS else Condition.DISK


def resource_of(signal: Signal) -> str:
    """Its name in events, messages and annotations."""
    if signal in MEMORY:
        return "memory"
    if signal is Signal.PIDS:
        return "pids"
    return "inodes" if signal in INODES else "ephemeral-storage"


class Layout(StrEnum):
    """Where images and writable layers are."""

    ONE = "one"
    """On the file system of --root-dir, both."""
    APART = "apart"
    """Both on one of their own."""
    SPLIT = "split"
    """Images on one of their own, writable layers beside --root-dir."""


def layout_of(node: int, images: int, layers: int) -> Layout:
    """The layout, by the device numbers of --root-dir, images and writable layers."""
    if images == node:
        return Layout.ONE
    return Layout.SPLIT if layers == node else Layout.APART


class SignalObservation(Struct, frozen=True):
    """One signal: bytes, inodes or tasks.

    Attributes:
        at: event-loop seconds.
    """

    available: int
    capacity: int
    at: float


Observations = Mapping[Signal, SignalObservation]


class Doubt(StrEnum):
    """Why a number is not believed."""

    NEGATIVE = "it is negative"
    NO_CAPACITY = "there is no capacity"
    TOO_MUCH = "more is free than there is"
    STALE = "it is old"
    AHEAD = "it is from the future"


class CheckedObservations(Struct, frozen=True):
    """Which numbers of one observation are plausible, and which are not."""

    observations: Observations = field(default_factory=dict)
    doubts: Mapping[Signal, Doubt] = field(default_factory=dict)


def believable(found: Observations, now: float) -> CheckedObservations:
    """Drop impossible numbers: no pod is evicted for them.

    Args:
        found: as it was read.
        now: event-loop seconds.
    """
    doubts = {
        signal: doubt for signal, seen in found.items() if (doubt := _doubt(seen, now)) is not None
    }
    return CheckedObservations({s: seen for s, seen in found.items() if s not in doubts}, doubts)


def _doubt(seen: SignalObservation, now: float) -> Doubt | None:
    if seen.available < 0:
        return Doubt.NEGATIVE
    if seen.capacity <= 0:
        return Doubt.NO_CAPACITY
    if seen.available > seen.capacity:
        return Doubt.TOO_MUCH
    if seen.at > now:
        return Doubt.AHEAD
    return Doubt.STALE if now - seen.at > STALE_S else None
