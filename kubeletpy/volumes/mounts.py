"""What the runtime mounts into each container, as far as it is known before containers start.

Pure. Parts of volumes (subPath) and the hosts file are prepared when a container starts
(:mod:`kubeletpy.volumes.container_mounts`). Source: docs/reference/behaviour.md, i5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.paths import PodPaths
from kubeletpy.volumes.plan import PlannedVolume, VolumePlan

PROPAGATION = {
    None: "PRIVATE",
    "": "PRIVATE",
    "None": "PRIVATE",
    "HostToContainer": "HOST_TO_CONTAINER",
    "Bidirectional": "BIDIRECTIONAL",
}


class PodMounts(Mapping[str, Sequence[Mount]]):
    """Container name -> its mounts, in the order of its volumeMounts.

    Made when they are asked for: a pod may mount each of a thousand volumes into each of its
    containers, and one that runs already asks for nothing.
    """

    def __init__(self, pod: Pod, plan: VolumePlan, paths: PodPaths) -> None:
        """Raises UnsafePath."""
        self._volumes = {volume.name: (volume, host_path(volume, paths)) for volume in plan.volumes}
        self._wanted = {
            container["name"]: container["volumeMounts"]
            for _, container in pod.all_containers()
            if container.get("volumeMounts")
        }
        self._first_uses: dict[str, tuple[str, int]] = {}

    def __getitem__(self, name: str) -> Sequence[Mount]:
        wanted = self._wanted[name]
        firsts = self._labelled()
        return tuple(
            _mount(mount, index, *self._volumes[volume], firsts[volume] == (name, index))
            for index, mount in enumerate(wanted)
            for volume in (mount["name"],)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)

    def _labelled(self) -> Mapping[str, tuple[str, int]]:
        """Which use of each volume gives it its SELinux label: the first."""
        if not self._first_uses:
            for name, wanted in self._wanted.items():
                for index, mount in enumerate(wanted):
                    self._first_uses.setdefault(mount["name"], (name, index))
        return self._first_uses


def host_path(volume: PlannedVolume, paths: PodPaths) -> str:
    """Where a volume is on the node; empty for an image. Raises UnsafePath."""
    if volume.kind == "image":
        return ""
    if volume.kind == "hostPath":
        return str(volume.source.get("path") or "")
    return paths.volume(volume.kind, volume.name)


def _mount(
    mount: Mapping[str, Any], index: int, volume: PlannedVolume, at: str, is_first: bool
) -> Mount:
    path = mount.get("mountPath") or ""
    image = volume.source if volume.kind == "image" else {}
    return Mount(
        container_path=path if path.startswith("/") else f"/{path}",
        host_path=at,
        readonly=bool(mount.get("readOnly")) or volume.read_only,
        propagation=PROPAGATION.get(mount.get("mountPropagation"), "PRIVATE"),
        selinux_relabel=is_first and volume.kind not in ("hostPath", "image"),
        volume=volume.name,
        index=index,
        image=image.get("reference") or "",
        image_pull_policy=image.get("pullPolicy") or "",
    )
