"""Decides when the space that an eviction or a reclaim frees has appeared on the disk. Pure.

A runtime may remove a container at once and its writable layer later. containerd leaves layers to
its own garbage collection, which ran 0.1 to 0.5 s after RemoveContainer on an idle machine. It
pauses for fifty times as long as it last took. Until then the disk is as full as before, and the
next pod would be evicted for what the last one left behind.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct, replace
from kubeletpy.node.eviction.ranking import Ranked, counts_layers
from kubeletpy.node.eviction.signals import INODES, Layout, Signal, SignalObservation
from kubeletpy.node.eviction.thresholds import Threshold

LAYER_S = 10.0
"""How long nothing may be freed on the disk while a layer waits to be removed."""
GARBAGE_S = 2.0
"""The same for dead containers, whose size is unknown: a pod may have to be evicted instead."""
EARLY_S = 60.0
"""How long after an agent's start dead containers may be what an earlier one has evicted."""
STILL_S = 0.4
"""Once most of it is freed, it is complete when it has not grown for this long."""
MOST = 0.9
"""Share of what was counted: others write meanwhile."""


class Awaited(Struct, frozen=True):
    """Disk space or inodes that are to be freed.

    Attributes:
        counted: bytes or inodes; None: not known.
        written: how many more of them there may be, written since the runtime counted.
        patience: seconds for which none of it may show.
    """

    threshold: Threshold
    counted: int | None = None
    written: int = 0
    patience: float = GARBAGE_S

    @property
    def signal(self) -> Signal:
        """The signal that is to recover."""
        return self.threshold.signal


class Settling(Struct, frozen=True):
    """The observed progress of what is to be freed.

    One observation may be wrong: a jump counts once the next one confirms it, as where pods are
    chosen.

    Attributes:
        least: the least that was available; ``last``: the last observation; ``sure``: what it and
            the one before both saw to be available.
        still_since: event-loop seconds; ``sure`` has not grown since then.
    """

    awaited: Awaited
    least: int
    last: int
    sure: int
    still_since: float


def freed_by(going: Ranked, threshold: Threshold, layout: Layout, written: int) -> Awaited | None:
    """The space that the runtime frees later, after a pod's end; None: the agent frees all itself.

    Args:
        written: bytes or inodes that were used up since the layers may have been counted.
    """
    signal = threshold.signal
    if not counts_layers(signal, layout):
        return None
    use, which = going.pod.use, 1 if signal in INODES else 0
    if use is None or use.disk.layers_at == 0:
        return Awaited(threshold, patience=LAYER_S)
    # logs may stay until the pod is deleted
    counted = use.disk.layers[which]
    if layout is not Layout.APART:
        counted += use.disk.volumes[which]
    return Awaited(threshold, counted, max(0, written), LAYER_S)


def may_be_settling(age: float) -> bool:
    """Whether the layer of a pod that an earlier agent evicted may still leave the disk.

    No pod is evicted for the disk until then; the kubelet first observes after 10 s.

    Args:
        age: seconds since the agent's first observation.
    """
    return age < LAYER_S


def freed_by_reclaim(threshold: Threshold, age: float) -> Awaited:
    """The space that the runtime frees later, after the removal of dead containers.

    Args:
        age: seconds since the first observation. An evicted pod's layer is worth a longer
            wait, and a new agent has no record of whose layer it removes.
    """
    return Awaited(threshold, patience=LAYER_S if age < EARLY_S else GARBAGE_S)


def begun(awaited: Awaited, seen: SignalObservation, now: float) -> Settling:
    """State before anything has been reclaimed."""
    return Settling(awaited, seen.available, seen.available, seen.available, now)


def observed(settling: Settling, seen: SignalObservation, now: float) -> Settling:
    """The state after one more observation."""
    sure = min(settling.last, seen.available)
    return replace(
        settling,
        least=min(settling.least, max(settling.last, seen.available)),
        last=seen.available,
        sure=sure,
        still_since=now if sure > settling.sure else settling.still_since,
    )


def is_settled(settling: Settling, capacity: int, now: float) -> bool:
    """Whether the next pod may be judged by what is left.

    It may when all has been freed, when the rest would not be enough anyway, and when nothing was
    freed for too long. The end of pressure ends the wait only if it is unknown how much
    is still to come: what comes later counts when the node runs short again.
    """
    awaited, threshold = settling.awaited, settling.awaited.threshold
    seen = SignalObservation(settling.sure, capacity, now)
    patience = awaited.patience
    if awaited.counted is None:
        if not threshold.unresolved(seen):
            return True
    else:
        came = seen.available - settling.least
        rest = awaited.counted + awaited.written - came
        if threshold.unresolved(replace(seen, available=seen.available + rest)):
            return True
        if came >= MOST * awaited.counted:
            patience = STILL_S
    return now - settling.still_since >= patience
