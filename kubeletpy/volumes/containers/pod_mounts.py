"""The mounts of each container, as far as they are known before containers start.

Pure. subPaths and the hosts file are prepared when a container starts
(:mod:`kubeletpy.volumes.containers.container_mounts`). Source: docs/reference/behaviour.md, i5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.pods.environment import (
    EnvironmentInputs,
    ExpansionTooLong,
    build_environment,
    expand,
)
from kubeletpy.pods.pod import Mount, Pod
from kubeletpy.pods.runtime_status import SubPathError
from kubeletpy.volumes.claims.model import SetUp
from kubeletpy.volumes.files.paths import PodPaths, UnsafePath, sub_path_parts
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume, VolumePlan

MAX_MISSING = 10
"""Variables that an error names."""
MAX_REPORTED = 256
"""Characters of an expression shown in an error."""
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

    Computed on demand: a pod may mount each of a thousand volumes into each of its containers, and
    a running container needs none.
    """

    def __init__(
        self, pod: Pod, plan: VolumePlan, paths: PodPaths, claimed: Mapping[str, SetUp] = _NONE
    ) -> None:
        """``claimed``: the claim-backed volumes that are ready. Raises UnsafePath."""
        self._claimed = claimed
        self._devices = {
            container["name"]: container["volumeDevices"]
            for _, container in pod.all_containers()
            if container.get("volumeDevices")
        }
        self._volumes = {volume.name: (volume, host_path(volume, paths)) for volume in plan.volumes}
        self._desired = {
            container["name"]: container["volumeMounts"]
            for _, container in pod.all_containers()
            if container.get("volumeMounts")
        }

    def __getitem__(self, name: str) -> Sequence[Mount]:
        if name not in self._desired and name not in self._devices:
            raise KeyError(name)
        mounts = [
            self._mount(mount, index, self._first_uses[mount["name"]] == (name, index))
            for index, mount in enumerate(self._desired.get(name, ()))
        ]
        return (*mounts, *(self._device(use) for use in self._devices.get(name, ())))

    def __iter__(self) -> Iterator[str]:
        return iter({**self._desired, **self._devices})

    def __len__(self) -> int:
        return len(self._desired.keys() | self._devices.keys())

    def _mount(self, mount: Mapping[str, Any], index: int, is_first: bool) -> Mount:
        name, path = mount["name"], mount.get("mountPath") or ""
        made = Mount(
            container_path=path if path.startswith("/") else f"/{path}",
            host_path="",
            readonly=bool(mount.get("readOnly")),
            propagation=PROPAGATION.get(mount.get("mountPropagation"), "PRIVATE"),
            volume=name,
            index=index,
        )
        if (there := self._claimed.get(name)) is not None:
            return replace(
                made,
                host_path=there.path,
                readonly=made.readonly or there.read_only,
                selinux_relabel=is_first and there.selinux_relabel,
                spec_name=there.spec_name,
                group=there.group,
            )
        volume, at = self._volumes[name]
        return replace(
            made,
            host_path=at,
            readonly=made.readonly or volume.read_only,
            selinux_relabel=is_first and volume.kind not in ("hostPath", "image"),
            image=volume.source.get("reference") or "",  # only an image has these
            image_pull_policy=volume.source.get("pullPolicy") or "",
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

    @cached_property
    def _first_uses(self) -> Mapping[str, tuple[str, int]]:
        """The use of each volume that sets its SELinux label."""
        found: dict[str, tuple[str, int]] = {}
        for name, desired in self._desired.items():
            for index, mount in enumerate(desired):
                found.setdefault(mount["name"], (name, index))
        return found


def host_path(volume: PlannedVolume, paths: PodPaths) -> str:
    """The path of a volume on the node; empty for an image. Raises UnsafePath."""
    if volume.kind == "image":
        return ""
    if volume.kind == "hostPath":
        return str(volume.source.get("path") or "")
    return paths.volume(volume.kind, volume.name)


def sub_paths(
    pod: Pod, container: api.Container, environment: EnvironmentInputs
) -> dict[int, list[str]]:
    """Index of a mount -> the part of a volume that it shows; whole volumes have no entry.

    Raises ContainerConfigError.
    """
    found: dict[int, list[str]] = {}
    variables: Mapping[str, str] | None = None
    for index, spec in enumerate(container.get("volumeMounts") or ()):
        path = spec.get("subPath") or ""
        expression = spec.get("subPathExpr") or ""
        name = spec.get("name")
        try:
            if expression:
                if variables is None:
                    variables = build_environment(pod, container, environment)
                path = expand_strictly(expression, variables)
            if path and (parts := _parts(path, expression)):
                found[index] = parts
        except (UnsafePath, ExpansionTooLong) as error:
            raise SubPathError(f'volumeMount "{name}": subPath: {error}') from error
    return found


def _parts(path: str, expression: str) -> list[str]:
    try:
        return sub_path_parts(path)
    except UnsafePath as error:
        if not expression:
            raise
        # the value of a variable may be a secret
        raise UnsafePath(
            f"{shortened(expression)!r} does not become a path inside the volume"
        ) from error


def shortened(text: str) -> str:
    """A text of a spec for an error."""
    return text if len(text) <= MAX_REPORTED else text[: MAX_REPORTED - 1] + "…"


def expand_strictly(expression: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; every variable must be there.

    Raises:
        UnsafePath: one is missing; the message names it.
    """
    missing: list[str] = []

    def value_of(name: str) -> str:
        value = variables.get(name)
        if value is None:
            missing.append(name)
        return value or ""

    path = expand(expression, value_of)
    if missing:
        listed = ", ".join(missing[:MAX_MISSING])
        raise UnsafePath(f"{shortened(expression)!r}: missing value for {shortened(listed)}")
    return path
