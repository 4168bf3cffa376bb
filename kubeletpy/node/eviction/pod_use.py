"""The resource use of a pod and its containers, next to their requests. Pure.

Source: docs/reference/behaviour-resources.md, ra; docs/reference/behaviour-resources.md, rd.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, parse_quantity, whole
from kubeletpy.base.structs import Struct
from kubeletpy.node.stats.usage import PodDisk, PodReading, TreeUse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import is_critical
from kubeletpy.pods.resources import pod_requests

MEMORY, STORAGE = "memory", "ephemeral-storage"


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
    return {name: whole(found[name]) for name in (MEMORY, STORAGE) if name in found}


def _requests_of(container: api.Container) -> dict[str, Quantity]:
    asked = (container.get("resources") or {}).get("requests") or {}
    try:
        return {name: parse_quantity(asked[name]) for name in (MEMORY, STORAGE) if name in asked}
    except ValueError:
        return {}


def _pod_level(pod: Pod) -> Quantity | None:
    asked = (pod.spec.get("resources") or {}).get("requests") or {}
    try:
        return parse_quantity(asked[MEMORY]) if MEMORY in asked else None
    except ValueError:
        return None
