"""Which pod is evicted first, why, and what may be reclaimed before any is. Pure.

Source: docs/reference/behaviour.md, p6; docs/reference/behaviour-resources.md, rd. Where the
kubelet leaves the order open the uid decides, so that two rankings give the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct, replace
from kubeletpy.node.eviction.pod_use import STORAGE, Candidate, Use
from kubeletpy.node.eviction.signals import (
    CONTAINER_FS,
    INODES,
    MEMORY,
    Layout,
    Signal,
    resource_of,
)

LAYERS_S = 12.0
"""How long after a crossing the runtime may take to count writable layers again.

containerd does so every 10 s by default, and the count itself takes a while.
"""


class Reclaim(StrEnum):
    """A kind of reclaim by the node, in this order: dead containers keep images in use."""

    CONTAINERS = "containers"
    IMAGES = "images"


_BOTH = (Reclaim.CONTAINERS, Reclaim.IMAGES)
_OF_IMAGES = (Signal.IMAGEFS, Signal.IMAGEFS_INODES)


def reclaims(signal: Signal, layout: Layout) -> tuple[Reclaim, ...]:
    """The reclaims that help against too little of a signal."""
    if signal in MEMORY or signal is Signal.PIDS:
        return ()
    if layout is Layout.ONE:
        return _BOTH
    on_images = signal in _OF_IMAGES
    if layout is Layout.APART:
        return _BOTH if on_images or signal in CONTAINER_FS else ()
    return (Reclaim.IMAGES,) if on_images else (Reclaim.CONTAINERS,)


class Ranked(Struct, frozen=True):
    """A pod in the eviction order, and what put it there.

    Attributes:
        used: None: not known, which ranks before all that is known.
        request: as compared; inodes and tasks have none.
    """

    pod: Candidate
    used: int | None
    request: int

    @property
    def over(self) -> bool:
        """Whether it uses more than it requested."""
        return self.used is not None and self.used > self.request


def rank(pods: Sequence[Candidate], signal: Signal, layout: Layout) -> list[Ranked]:
    """The pods in eviction order, including critical ones, which stay."""
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
    compared = STORAGE if signal in INODES else resource
    return sorted(
        ranked,
        key=lambda r: (
            r.used is not None,
            not r.over,
            r.pod.priority,
            r.pod.requests.get(compared, 0) - (r.used or 0),
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
    """Whether to wait until the pods' disk usage is counted again.

    The runtime counts writable layers periodically (containerd every 10 s), and a large volume
    takes time. What has filled the disk since is not charged to any pod yet: if another pod had
    written all of it, would that pod be evicted first?

    Args:
        chosen: the first of these pods to be evicted for this signal.
        grown: bytes or inodes used up since the layers may have been counted. With 0 or less, or
            for a signal that is not of a disk, the answer is no.
        crossed: when the threshold was crossed, Unix seconds.
    """
    hiding = [
        pod
        if pod is chosen.pod or not _may_hide(pod, signal, layout, crossed)
        else _with_more(pod, signal, layout, grown)
        for pod in pods
    ]
    first = first_to_go(rank(hiding, signal, layout))
    return first is not None and first.pod is not chosen.pod


def _may_hide(pod: Candidate, signal: Signal, layout: Layout, crossed: float) -> bool:
    """Whether a pod may have written more to the disk of a signal than is known."""
    if pod.use is None:
        return False
    disk = pod.use.disk
    old = disk.layers_at is not None and disk.layers_at < crossed * 1e9
    return (old and counts_layers(signal, layout)) or (
        disk.pending and _counts_trees(signal, layout)
    )


def _with_more(pod: Candidate, signal: Signal, layout: Layout, grown: int) -> Candidate:
    """A pod as if it had written so much that is not counted: bytes or inodes, as the signal
    counts, to which the other number means nothing."""
    assert pod.use is not None, "it may hide something"
    disk = pod.use.disk
    if counts_layers(signal, layout):
        disk = replace(disk, layers=_plus(disk.layers, grown))
    else:
        disk = replace(disk, volumes=_plus(disk.volumes, grown))
    return replace(pod, use=replace(pod.use, disk=disk))


def _plus(pair: tuple[int, int], more: int) -> tuple[int, int]:
    return (pair[0] + more, pair[1] + more)


def counts_layers(signal: Signal, layout: Layout) -> bool:
    """Whether writable layers are on a signal's file system."""
    on_images = signal in _OF_IMAGES
    if layout is Layout.APART:
        return on_images or signal in CONTAINER_FS
    return layout is Layout.ONE or not on_images


def _counts_trees(signal: Signal, layout: Layout) -> bool:
    """Whether logs and volumes are on a signal's file system."""
    if layout is Layout.APART:
        return signal in (Signal.NODEFS, Signal.NODEFS_INODES)
    return layout is Layout.ONE or signal not in _OF_IMAGES


def _used(use: Use, signal: Signal, layout: Layout) -> int:
    if signal in MEMORY:
        return use.memory
    if signal is Signal.PIDS:
        return use.tasks
    which = 1 if signal in INODES else 0
    disk = use.disk
    layers = disk.layers[which] if counts_layers(signal, layout) else 0
    trees = disk.logs[which] + disk.volumes[which] if _counts_trees(signal, layout) else 0
    return layers + trees
