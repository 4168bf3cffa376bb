"""What the runtime mounts into each container, as far as it is known before containers start.

Pure. Parts of volumes (subPath) and the hosts file are prepared when a container starts
(:mod:`kubeletpy.volumes.container_mounts`). Source: docs/reference/behaviour.md, i5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.on_disk import SetUp
from kubeletpy.volumes.paths import PodPaths
from kubeletpy.volumes.plan import PlannedVolume, VolumePlan

PROPAGATION = {
    None: "PRIVATE",
    "": "PRIVATE",
    "None": "PRIVATE",
    "HostToContainer": "HOST_TO_CONTAINER",
    "Bidirectional": "BIDIRECTIONAL",
}


_NONE: Mapping[str, SetUp] = MappingProxyType({})


class PodMounts(Mapping[str, Sequence[Mount]]):
    """Container name -> its mounts, in the order of its volumeMounts.

    Made when they are asked for: a pod may mount each of a thousand volumes into each of its
    containers, and one that runs already asks for nothing.
    """

    def __init__(
        self, pod: Pod, plan: VolumePlan, paths: PodPaths, claimed: Mapping[str, SetUp] = _NONE
    ) -> None:
        """``claimed``: those volumes of claims that are there. Raises UnsafePath."""
        self._claimed = claimed
        self._devices = {
            container["name"]: container["volumeDevices"]
            for _, container in pod.all_containers()
            if container.get("volumeDevices")
        }
        self._volumes = {volume.name: (volume, host_path(volume, paths)) for volume in plan.volumes}
        self._wanted = {
            container["name"]: container["volumeMounts"]
            for _, container in pod.all_containers()
            if container.get("volumeMounts")
        }
        self._first_uses: dict[str, tuple[str, int]] = {}

    def __getitem__(self, name: str) -> Sequence[Mount]:
        if name not in self._wanted and name not in self._devices:
            raise KeyError(name)
        firsts = self._labelled()
        mounts = [
            self._mount(mount, index, firsts[mount["name"]] == (name, index))
            for index, mount in enumerate(self._wanted.get(name, ()))
        ]
        return (*mounts, *(self._device(use) for use in self._devices.get(name, ())))

    def __iter__(self) -> Iterator[str]:
        return iter({**self._wanted, **self._devices})

    def __len__(self) -> int:
        return len(self._wanted.keys() | self._devices.keys())

    def _mount(self, mount: Mapping[str, Any], index: int, is_first: bool) -> Mount:
        there = self._claimed.get(mount["name"])
        if there is None:
            return _mount(mount, index, *self._volumes[mount["name"]], is_first)
        path = mount.get("mountPath") or ""
        return Mount(
            container_path=path if path.startswith("/") else f"/{path}",
            host_path=there.path,
            readonly=bool(mount.get("readOnly")) or there.read_only,
            propagation=PROPAGATION.get(mount.get("mountPropagation"), "PRIVATE"),
            selinux_relabel=is_first and there.selinux_relabel,
            volume=mount["name"],
            index=index,
            group=there.group,
        )

    def _device(self, use: Mapping[str, Any]) -> Mount:
        there = self._claimed[use["name"]]
        return Mount(
            container_path=use.get("devicePath") or "",
            host_path=there.path,
            volume=use["name"],
            device="r" if there.read_only else "mrw",
            group=there.group,
        )

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
