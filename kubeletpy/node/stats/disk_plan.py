"""Which directory trees on disk belong to a pod. Pure.

Source: docs/reference/names.csv: volume-dir, log. Ephemeral storage is the containers' writable
layers and logs, emptyDir volumes on disk, configMaps, and etc-hosts. It includes containers'
termination message files, which the kubelet omits although containers write to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.node.stats.usage import PodDisk, PodRef, TreeUse, VolumeUse
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.names import UnsafeName, container_log_directory, pod_log_directory
from kubeletpy.volumes.files.paths import PLUGINS, PodPaths, UnsafePath

MAX_VOLUMES = 1000
"""Limit for one pod, where numbers are only displayed."""
UNCOUNTABLE = 1 << 64
"""Bytes: more than any file system holds."""


class VolumeTree(Struct, frozen=True):
    """A volume and its directory."""

    name: str
    path: str
    ephemeral: bool


class PodTrees(Struct, frozen=True):
    """The directory trees of a pod to measure.

    Attributes:
        pod_logs: the directory of all its logs, including those of containers.
        logs: container name -> directory.
        hosts: the managed hosts file.
        all_words: the directory of all termination message files.
        words: container name -> directory of its own.
    """

    uid: str
    volumes: tuple[VolumeTree, ...]
    pod_logs: str
    logs: dict[str, str]
    hosts: str
    all_parts: str
    parts: dict[str, str]

    def paths(self) -> Iterator[str]:
        """The paths of all trees to measure."""
        yield from (volume.path for volume in self.volumes)
        yield from self.logs.values()
        yield self.pod_logs
        yield self.hosts
        yield self.all_parts
        yield from self.parts.values()


def trees(
    ref: PodRef,
    pod: Pod | None,
    containers: tuple[str, ...],
    pods_dir: str,
    logs_root: str,
    *,
    max_volumes: int | None = MAX_VOLUMES,
) -> PodTrees | None:
    """The plan of a pod; ``pod`` None: no source has it, and only its logs count.

    ``max_volumes``: None: all, possibly tens of thousands; for limits, and not on the event loop.
    Returns None when a name can't be part of a path.
    """
    paths = PodPaths(pods_dir, ref.uid)
    where = (logs_root, ref.namespace, ref.name, ref.uid)
    try:
        return PodTrees(
            uid=ref.uid,
            volumes=tuple(_volumes(pod, paths, max_volumes)),
            pod_logs=pod_log_directory(*where),
            logs={name: container_log_directory(*where, name) for name in containers},
            hosts=paths.hosts_file,
            all_parts=paths.containers_dir,
            parts={name: paths.container_dir(name) for name in containers},
        )
    except (UnsafePath, UnsafeName):
        return None


def _volumes(pod: Pod | None, paths: PodPaths, most: int | None) -> Iterator[VolumeTree]:
    spec: Any = pod.spec if pod is not None else {}
    for volume in (spec.get("volumes") or ())[:most]:
        for kind in PLUGINS:
            source = volume.get(kind)
            if source is None:
                continue
            on_disk = kind == "configMap" or (kind == "emptyDir" and not source.get("medium"))
            name = str(volume.get("name") or "")
            yield VolumeTree(name, paths.volume(kind, name), on_disk)


def pod_disk(
    plan: PodTrees, measured: dict[str, TreeUse], pending: Collection[str] = ()
) -> PodDisk:
    """A pod's measured disk usage. Logs of no container are the remainder of all its logs.

    ``pending``: paths that have not been measured yet.
    """
    logs = {name: measured[path] for name, path in plan.logs.items() if path in measured}
    others = [measured[path] for path in (plan.hosts, plan.all_parts) if path in measured]
    if (whole := measured.get(plan.pod_logs)) is not None:
        used = (whole.used or 0) - sum(each.used or 0 for each in logs.values())
        inodes = (whole.inodes or 0) - sum(each.inodes or 0 for each in logs.values())
        others.append(replace(whole, used=max(0, used), inodes=max(0, inodes)))
    return PodDisk(
        volumes=tuple(
            VolumeUse(volume.name, measured[volume.path], volume.ephemeral)
            for volume in plan.volumes
            if volume.path in measured
        ),
        logs=logs,
        parts={name: measured[path] for name, path in plan.parts.items() if path in measured},
        others=tuple(others),
        pending=any(path in pending for path in plan.paths()),
    )


class PodStorage(Struct, frozen=True):
    """A pod's usage of the node's disk, in bytes; unknown parts are omitted.

    An uncountable tree (``TreeUse.beyond``) exceeds any limit: UNCOUNTABLE.

    Attributes:
        volumes: by name.
        containers: running containers by name: logs, termination message files, and writable layers
            where they are on the node's file system.
        total: all that counts as the pod's ephemeral storage.
    """

    volumes: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)
    total: int = 0


def ephemeral_parts(disk: PodDisk) -> list[TreeUse]:
    """The trees that count as ephemeral storage besides the containers' writable layers."""
    volumes = (volume.use for volume in disk.volumes if volume.ephemeral)
    return [*disk.logs.values(), *volumes, *disk.others]


def pod_storage(disk: PodDisk, layers: Mapping[str, int], *, layers_apart: bool) -> PodStorage:
    """A pod's disk usage.

    Args:
        disk: as measured.
        layers: writable layers by container name, bytes.
        layers_apart: images and layers have a file system of their own; then a container's layer
            does not count for the container but does for the pod (as in the kubelet).
    """
    containers = {name: _bytes(use) for name, use in disk.logs.items()}
    for name, use in disk.parts.items():
        containers[name] = containers.get(name, 0) + _bytes(use)
    if not layers_apart:
        for name, used in layers.items():
            containers[name] = containers.get(name, 0) + used
    return PodStorage(
        volumes={volume.name: _bytes(volume.use) for volume in disk.volumes},
        containers=containers,
        total=sum(layers.values()) + sum(_bytes(part) for part in ephemeral_parts(disk)),
    )


def _bytes(use: TreeUse) -> int:
    return UNCOUNTABLE if use.beyond else use.used or 0
