"""Which pod goes first, why, and what may be cleared away before any goes. Pure.

Source: docs/reference/behaviour.md, p6; docs/reference/behaviour-resources.md, rd. Where the
kubelet leaves the order open the uid decides, so that two looks come to the same end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kubeletpy.eviction.pod_use import STORAGE, Candidate, Use
from kubeletpy.eviction.signals import (
    CONTAINER_FS,
    INODES,
    MEMORY,
    Layout,
    Signal,
    resource_of,
)


class Reclaim(StrEnum):
    """What the node can clear away itself, in this order: dead containers hold images."""

    CONTAINERS = "containers"
    IMAGES = "images"


_BOTH = (Reclaim.CONTAINERS, Reclaim.IMAGES)
_OF_IMAGES = (Signal.IMAGEFS, Signal.IMAGEFS_INODES)


def reclaims(signal: Signal, layout: Layout) -> tuple[Reclaim, ...]:
    """What helps against too little of a signal."""
    if signal in MEMORY or signal is Signal.PIDS:
        return ()
    if layout is Layout.ONE:
        return _BOTH
    on_images = signal in _OF_IMAGES
    if layout is Layout.APART:
        return _BOTH if on_images or signal in CONTAINER_FS else ()
    return (Reclaim.IMAGES,) if on_images else (Reclaim.CONTAINERS,)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A pod in the order of going, and what put it there.

    Attributes:
        used: None: not known, which goes before all that is.
        request: as it is compared; of inodes and tasks there is none.
    """

    pod: Candidate
    used: int | None
    request: int

    @property
    def over(self) -> bool:
        """Whether it uses more than it asked for."""
        return self.used is not None and self.used > self.request


def rank(pods: Sequence[Candidate], signal: Signal, layout: Layout) -> list[Ranked]:
    """The pods in the order in which they would go; critical ones, which stay, among them."""
    resource = resource_of(signal)
    ranked = [
        Ranked(
            pod,
            None if pod.use is None else _used(pod.use, signal, layout),
            pod.requests.get(resource, 0),
        )
        for pod in pods
    ]
    if signal is Signal.PIDS:
        return sorted(
            ranked,
            key=lambda r: (r.pod.priority, r.used is not None, -(r.used or 0), r.pod.uid),
        )
    # inodes are compared with a request for bytes in the end, as the kubelet does
    asked = STORAGE if signal in INODES else resource
    return sorted(
        ranked,
        key=lambda r: (
            r.used is not None,
            not r.over,
            r.pod.priority,
            r.pod.requests.get(asked, 0) - (r.used or 0),
            r.pod.uid,
        ),
    )


def first_to_go(ranking: Sequence[Ranked]) -> Ranked | None:
    """The first pod that may be evicted."""
    return next((each for each in ranking if not each.pod.critical), None)


def is_premature(
    chosen: Ranked,
    pods: Sequence[Candidate],
    signal: Signal,
    layout: Layout,
    *,
    grown: int,
    crossed: float,
) -> bool:
    """Whether to wait until the runtime has counted the writable layers again.

    It counts them now and then (containerd each 10 s). What has filled the disk since is charged to
    nobody yet: had another pod written all of it, would that one go first?

    Args:
        chosen: the first to go of these pods, for this signal.
        grown: bytes or inodes that were used up since the layers may have been counted.
        crossed: when the threshold was crossed, Unix seconds.
    """
    if grown <= 0 or not _counts_layers(signal, layout):
        return False
    which = 1 if signal in INODES else 0
    worst = [pod if pod is chosen.pod else _with_layers(pod, which, grown, crossed) for pod in pods]
    first = first_to_go(rank(worst, signal, layout))
    return first is not None and first.pod is not chosen.pod


def _with_layers(pod: Candidate, which: int, grown: int, crossed: float) -> Candidate:
    """A pod as if it had written so much to its layer since that was counted."""
    use = pod.use
    if use is None or use.disk.layers_at is None or use.disk.layers_at >= crossed * 1e9:
        return pod
    layers = list(use.disk.layers)
    layers[which] += grown
    return replace(pod, use=replace(use, disk=replace(use.disk, layers=(layers[0], layers[1]))))


def _counts_layers(signal: Signal, layout: Layout) -> bool:
    """Whether writable layers are on the file system of a signal."""
    on_images = signal in _OF_IMAGES
    if layout is Layout.APART:
        return on_images or signal in CONTAINER_FS
    return layout is Layout.ONE or not on_images


def _used(use: Use, signal: Signal, layout: Layout) -> int:
    if signal in MEMORY:
        return use.memory
    if signal is Signal.PIDS:
        return use.tasks
    which = 1 if signal in INODES else 0
    disk = use.disk
    beside_node = disk.logs[which] + disk.volumes[which]
    if not _counts_layers(signal, layout):
        return 0 if signal in _OF_IMAGES else beside_node
    return disk.layers[which] + (0 if layout is Layout.APART else beside_node)
