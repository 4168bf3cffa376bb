"""What the runtime mounts into each container, as far as it is known before containers start.

Pure. Parts of volumes (subPath) and the hosts file are prepared when a container starts
(:mod:`kubeletpy.volumes.container_mounts`). Source: docs/reference, volumes: mounts for the
runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.protocol import Mount
from kubeletpy.volumes.paths import PodPaths
from kubeletpy.volumes.plan import PlannedVolume, VolumePlan

PROPAGATION = {
    None: "PRIVATE",
    "": "PRIVATE",
    "None": "PRIVATE",
    "HostToContainer": "HOST_TO_CONTAINER",
    "Bidirectional": "BIDIRECTIONAL",
}


def pod_mounts(pod: Pod, plan: VolumePlan, paths: PodPaths) -> dict[str, Sequence[Mount]]:
    """Container name -> its mounts, in the order of its volumeMounts. Raises UnsafePath."""
    volumes = {volume.name: volume for volume in plan.volumes}
    labelled: set[str] = set()
    mounts: dict[str, Sequence[Mount]] = {}
    for _, container in pod.all_containers():
        found = [
            _mount(mount, index, volumes[mount["name"]], paths, labelled)
            for index, mount in enumerate(container.get("volumeMounts") or ())
        ]
        if found:
            mounts[container["name"]] = tuple(found)
    return mounts


def host_path(volume: PlannedVolume, paths: PodPaths) -> str:
    """Where a volume is on the node; empty for an image. Raises UnsafePath."""
    if volume.kind == "image":
        return ""
    if volume.kind == "hostPath":
        return str(volume.source.get("path") or "")
    return paths.volume(volume.kind, volume.name)


def _mount(
    mount: Mapping[str, Any],
    index: int,
    volume: PlannedVolume,
    paths: PodPaths,
    labelled: set[str],
) -> Mount:
    path = mount.get("mountPath") or ""
    image = volume.source if volume.kind == "image" else {}
    relabel = volume.kind not in ("hostPath", "image") and volume.name not in labelled
    labelled.add(volume.name)
    return Mount(
        container_path=path if path.startswith("/") else f"/{path}",
        host_path=host_path(volume, paths),
        readonly=bool(mount.get("readOnly")) or volume.read_only,
        propagation=PROPAGATION.get(mount.get("mountPropagation"), "PRIVATE"),
        selinux_relabel=relabel,
        volume=volume.name,
        index=index,
        image=image.get("reference") or "",
        image_pull_policy=image.get("pullPolicy") or "",
    )
