"""Which pod is evicted first, why, and what may be reclaimed before any is. Pure.

Also the interfaces through which a keeper measures (:class:`NodeSignals`, :class:`PodUses`), and
when what an eviction frees has appeared on the disk. Where the kubelet leaves the order open the
uid decides, so that two rankings give the same order. Source: docs/reference/behaviour.md, p6;
docs/reference/behaviour-resources.md, ra, rd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, parse_quantity, whole
from kubeletpy.base.structs import Struct, replace
from kubeletpy.node.eviction import decide
from kubeletpy.node.stats.usage import PodDisk, PodReading, TreeUse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import is_critical, pod_requests

# The resource use of pods and containers, next to their requests.

MEMORY_REQUEST, STORAGE = "memory", "ephemeral-storage"


class DiskUse(Struct, frozen=True):
    """Bytes and inodes by where they are.

    ``layers_at``: when the runtime last counted the layers, the oldest of them, in Unix
    nanoseconds; 0: it has not yet; None: there is none, or they were counted just now.
    ``pending``: some logs and volumes have not been measured yet.
    """

    layers: tuple[int, int] = (0, 0)
    logs: tuple[int, int] = (0, 0)
    volumes: tuple[int, int] = (0, 0)
    layers_at: int | None = None
    pending: bool = False


class ContainerUse(Struct, frozen=True):
    """A container that is named in messages; None: not known."""

    name: str
    memory: int | None
    storage: int | None
    requests: Mapping[str, Quantity]


class Use(Struct, frozen=True):
    """The resource use of a running pod."""

    memory: int = 0
    tasks: int = 0
    disk: DiskUse = DiskUse()
    containers: tuple[ContainerUse, ...] = ()


class Candidate(Struct, frozen=True):
    """A pod that may have to be evicted.

    Attributes:
        requests: memory and ephemeral storage in bytes.
        pod_level: its request for memory as a whole, where the spec has one.
        use: None: nothing of it runs, or it is not known.
    """

    uid: str
    key: str
    priority: int
    critical: bool
    requests: Mapping[str, int]
    pod_level: Quantity | None = None
    use: Use | None = None


def candidate(pod: Pod, reading: PodReading | None, disk: PodDisk | None) -> Candidate:
    """A pod as its resources were allocated, with what was read of it."""
    return Candidate(
        uid=pod.uid,
        key=pod.key,
        priority=pod.priority,
        critical=is_critical(pod),
        requests=_requests(pod),
        pod_level=_pod_level(pod),
        use=None if reading is None or not reading.containers else _use(pod, reading, disk),
    )


def _use(pod: Pod, reading: PodReading, disk: PodDisk | None) -> Use:
    on_disk = disk if disk is not None else PodDisk()
    stats = reading.group.stats
    memory = stats.working_set if stats is not None else None
    if memory is None:
        memory = sum(c.stats.working_set or 0 for c in reading.containers if c.stats is not None)
    requests = {
        spec["name"]: _requests_of(spec) for spec in (*pod.containers, *pod.init_containers)
    }
    named = []
    for container in reading.containers:
        if container.name not in requests:
            continue  # an ephemeral one
        logs = on_disk.logs.get(container.name)
        layer = container.layer
        known = logs is not None and layer is not None
        named.append(
            ContainerUse(
                container.name,
                container.stats.working_set if container.stats is not None else None,
                _both(logs)[0] + _both(layer)[0] if known else None,
                requests[container.name],
            )
        )
    layers = [container.layer for container in reading.containers]
    return Use(
        memory=memory,
        tasks=_tasks(reading),
        disk=DiskUse(
            layers=_sum(layers),
            logs=_sum((*on_disk.logs.values(), *on_disk.others)),
            volumes=_sum(volume.use for volume in on_disk.volumes if volume.ephemeral),
            layers_at=min(
                (0 if layer.uncounted else layer.at for layer in layers if layer), default=None
            ),
            pending=on_disk.pending,
        ),
        containers=tuple(named),
    )


def _tasks(reading: PodReading) -> int:
    """Threads where the pids controller counts them, since those run out; else processes."""
    if reading.group.stats is not None and reading.group.stats.pids is not None:
        return reading.group.stats.pids
    counted = [c.stats.pids for c in reading.containers if c.stats is not None]
    threads = [pids for pids in counted if pids is not None]
    return sum(threads) if threads else reading.processes or 0


def _both(use: TreeUse | None) -> tuple[int, int]:
    return (0, 0) if use is None else (use.used or 0, use.inodes or 0)


def _sum(uses: Iterable[TreeUse | None]) -> tuple[int, int]:
    pairs = [_both(use) for use in uses]
    return sum(used for used, _ in pairs), sum(inodes for _, inodes in pairs)


def _requests(pod: Pod) -> dict[str, int]:
    try:
        found = pod_requests(pod)
    except ValueError:  # what can't be read is no request
        return {}
    return {name: whole(found[name]) for name in (MEMORY_REQUEST, STORAGE) if name in found}


def _requests_of(container: api.Container) -> dict[str, Quantity]:
    requested = (container.get("resources") or {}).get("requests") or {}
    try:
        return {
            name: parse_quantity(requested[name])
            for name in (MEMORY_REQUEST, STORAGE)
            if name in requested
        }
    except ValueError:
        return {}


def _pod_level(pod: Pod) -> Quantity | None:
    requested = (pod.spec.get("resources") or {}).get("requests") or {}
    try:
        return parse_quantity(requested[MEMORY_REQUEST]) if MEMORY_REQUEST in requested else None
    except ValueError:
        return None


LAYERS_S = 12.0
"""How long after a crossing the runtime may take to count writable layers again.

containerd does so every 10 s by default, and the count itself takes a while.
"""


class Reclaim(StrEnum):
    """A kind of reclaim by the node, in this order: dead containers keep images in use."""

    CONTAINERS = "containers"
    IMAGES = "images"


_BOTH = (Reclaim.CONTAINERS, Reclaim.IMAGES)
_OF_IMAGES = (decide.Signal.IMAGEFS, decide.Signal.IMAGEFS_INODES)


def reclaims(signal: decide.Signal, layout: decide.Layout) -> tuple[Reclaim, ...]:
    """The reclaims that help against too little of a signal."""
    if signal in decide.MEMORY or signal is decide.Signal.PIDS:
        return ()
    if layout is decide.Layout.ONE:
        return _BOTH
    on_images = signal in _OF_IMAGES
    if layout is decide.Layout.APART:
        return _BOTH if on_images or signal in decide.CONTAINER_FS else ()
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


def rank(pods: Sequence[Candidate], signal: decide.Signal, layout: decide.Layout) -> list[Ranked]:
    """The pods in eviction order, including critical ones, which stay."""
    resource = decide.resource_of(signal)
    ranked = [
        Ranked(
            pod,
            None if pod.use is None else _used(pod.use, signal, layout),
            pod.requests.get(resource, 0),
        )
        for pod in pods
    ]
    if signal is decide.Signal.PIDS:
        return sorted(
            ranked, key=lambda r: (r.pod.priority, r.used is not None, -(r.used or 0), r.pod.uid)
        )
    # inodes are compared with a request for bytes in the end, as the kubelet does
    compared = STORAGE if signal in decide.INODES else resource
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
    signal: decide.Signal,
    layout: decide.Layout,
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


def _may_hide(pod: Candidate, signal: decide.Signal, layout: decide.Layout, crossed: float) -> bool:
    """Whether a pod may have written more to the disk of a signal than is known."""
    if pod.use is None:
        return False
    disk = pod.use.disk
    old = disk.layers_at is not None and disk.layers_at < crossed * 1e9
    return (old and counts_layers(signal, layout)) or (
        disk.pending and _counts_trees(signal, layout)
    )


def _with_more(
    pod: Candidate, signal: decide.Signal, layout: decide.Layout, grown: int
) -> Candidate:
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


def counts_layers(signal: decide.Signal, layout: decide.Layout) -> bool:
    """Whether writable layers are on a signal's file system."""
    on_images = signal in _OF_IMAGES
    if layout is decide.Layout.APART:
        return on_images or signal in decide.CONTAINER_FS
    return layout is decide.Layout.ONE or not on_images


def _counts_trees(signal: decide.Signal, layout: decide.Layout) -> bool:
    """Whether logs and volumes are on a signal's file system."""
    if layout is decide.Layout.APART:
        return signal in (decide.Signal.NODEFS, decide.Signal.NODEFS_INODES)
    return layout is decide.Layout.ONE or signal not in _OF_IMAGES


def _used(use: Use, signal: decide.Signal, layout: decide.Layout) -> int:
    if signal in decide.MEMORY:
        return use.memory
    if signal is decide.Signal.PIDS:
        return use.tasks
    which = 1 if signal in decide.INODES else 0
    disk = use.disk
    layers = disk.layers[which] if counts_layers(signal, layout) else 0
    trees = disk.logs[which] + disk.volumes[which] if _counts_trees(signal, layout) else 0
    return layers + trees


# Interfaces to the machine.


class NodeSignals(Protocol):
    """Observes how much of each resource a node has left."""

    async def observe(self, desired: Collection[decide.Signal]) -> decide.Observations:
        """Observe what is available for each signal, as far as that is possible."""

    async def layout(self) -> decide.Layout | None:
        """Where images and writable layers are; None: not known yet."""

    def arm(self, margins: Mapping[decide.Signal, int]) -> None:
        """Have :meth:`noticed` return when this many more bytes are used."""

    async def noticed(self, within: float | None) -> None:
        """Wait for a notice, at most this many seconds; None: as long as it takes."""

    def wake(self) -> None:
        """Have :meth:`noticed` return at once."""

    async def close(self) -> None:
        """End notifications and release what is open."""


class PodUses(Protocol):
    """Measures the current resource use of pods."""

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Each pod with what it uses; ``disk``: including the disk."""

    async def close(self) -> None:
        """End measurements that are under way."""


# When the space that an eviction or a reclaim frees has appeared on the disk.
#
# A runtime may remove a container at once and its writable layer later. containerd leaves layers
# to its own garbage collection, which ran 0.1 to 0.5 s after RemoveContainer on an idle machine.
# It pauses for fifty times as long as it last took. Until then the disk is as full as before, and
# the next pod would be evicted for what the last one left behind.

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

    threshold: decide.Threshold
    counted: int | None = None
    written: int = 0
    patience: float = GARBAGE_S

    @property
    def signal(self) -> decide.Signal:
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


def freed_by(
    going: Ranked, threshold: decide.Threshold, layout: decide.Layout, written: int
) -> Awaited | None:
    """The space that the runtime frees later, after a pod's end; None: the agent frees all itself.

    Args:
        written: bytes or inodes that were used up since the layers may have been counted.
    """
    signal = threshold.signal
    if not counts_layers(signal, layout):
        return None
    use, which = going.pod.use, 1 if signal in decide.INODES else 0
    if use is None or use.disk.layers_at == 0:
        return Awaited(threshold, patience=LAYER_S)
    # logs may stay until the pod is deleted
    counted = use.disk.layers[which]
    if layout is not decide.Layout.APART:
        counted += use.disk.volumes[which]
    return Awaited(threshold, counted, max(0, written), LAYER_S)


def may_be_settling(age: float) -> bool:
    """Whether the layer of a pod that an earlier agent evicted may still leave the disk.

    No pod is evicted for the disk until then; the kubelet first observes after 10 s.

    Args:
        age: seconds since the agent's first observation.
    """
    return age < LAYER_S


def freed_by_reclaim(threshold: decide.Threshold, age: float) -> Awaited:
    """The space that the runtime frees later, after the removal of dead containers.

    Args:
        age: seconds since the first observation. An evicted pod's layer is worth a longer
            wait, and a new agent has no record of whose layer it removes.
    """
    return Awaited(threshold, patience=LAYER_S if age < EARLY_S else GARBAGE_S)


def begun(awaited: Awaited, seen: decide.SignalObservation, now: float) -> Settling:
    """State before anything has been reclaimed."""
    return Settling(awaited, seen.available, seen.available, seen.available, now)


def observed(settling: Settling, seen: decide.SignalObservation, now: float) -> Settling:
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
    seen = decide.SignalObservation(settling.sure, capacity, now)
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
