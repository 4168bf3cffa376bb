"""Names of pods' cgroups, for both drivers.

Pure. A name is a tuple of plain components below the root of the hierarchy; a driver writes it as a
path. Must never make a path out of a text that could lead anywhere else. Source:
docs/reference/names.csv: cgroup.
"""

from __future__ import annotations

import re
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.pods.resources import QoSClass

CgroupName = tuple[str, ...]

KUBEPODS = "kubepods"
POD_PREFIX = "pod"
SLICE = ".slice"
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:@-]{0,200}")


class CgroupDriver(StrEnum):
    """The creator of cgroups; the values are those of KubeletConfiguration's cgroupDriver."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class InvalidCgroupName(ValueError):
    """A text that cannot be part of a cgroup's name."""


def parse_root(text: str) -> CgroupName:
    """KubeletConfiguration's cgroupRoot: a path such as ``/`` or ``/nodes/a``.

    Raises:
        InvalidCgroupName: a component is not a plain name.
    """
    return tuple(_checked(part) for part in text.split("/") if part)


def parse_existing(text: str) -> str:
    """The path of an existing cgroup (systemReservedCgroup), with a leading slash.

    Raises:
        InvalidCgroupName: it would leave the hierarchy.
    """
    parts = [part for part in text.split("/") if part]
    if not parts or any(part in (".", "..") or "\0" in part for part in parts):
        raise InvalidCgroupName(f"not the path of a cgroup: {text[:100]!r}")
    return "/" + "/".join(parts)


def _checked(part: str) -> str:
    if not _COMPONENT.fullmatch(part) or part.endswith(SLICE):
        raise InvalidCgroupName(f"can not be part of a cgroup's name: {part[:100]!r}")
    return part


def to_cgroupfs(name: CgroupName) -> str:
    """The path below a hierarchy's mount point: ``/kubepods/burstable/pod1``."""
    return "/" + "/".join(name)


def to_systemd(name: CgroupName) -> str:
    """The path of a slice with its parents: systemd reads a dash in its name as a level.

    ``/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_B.slice``
    """
    escaped = [part.replace("-", "_") for part in name]
    slices = ["-".join(escaped[: depth + 1]) + SLICE for depth in range(len(escaped))]
    return "/" + "/".join(slices)


class PodCgroupNames(Struct, frozen=True):
    """The tree of pods' cgroups on a node: the place of each group and pod, in a driver's form."""

    driver: CgroupDriver = CgroupDriver.CGROUPFS
    root: CgroupName = ()
    """cgroupRoot; ``kubepods`` is below it."""

    def path(self, name: CgroupName) -> str:
        """The path of a name below each hierarchy's mount point."""
        return to_systemd(name) if self.driver is CgroupDriver.SYSTEMD else to_cgroupfs(name)

    @property
    def kubepods(self) -> str:
        """The group of all pods; Guaranteed pods are its children."""
        return self.group(QoSClass.GUARANTEED)

    def group(self, quality: QoSClass) -> str:
        """The parent of the pods of a QoS class."""
        return self.path(self._group(quality))

    def pod(self, uid: str, quality: QoSClass) -> str:
        """A pod's own cgroup.

        Raises:
            InvalidCgroupName: the uid has characters that are invalid in a uid.
        """
        if not _COMPONENT.fullmatch(uid):
            raise InvalidCgroupName(f"a pod's uid can not be part of a path: {uid[:100]!r}")
        return self.path((*self._group(quality), f"{POD_PREFIX}{uid}"))

    def pod_uid(self, directory: str) -> str | None:
        """The uid of the pod whose cgroup has this last component; None when it is not a pod's."""
        if self.driver is CgroupDriver.SYSTEMD:
            if not directory.endswith(SLICE):
                return None
            directory = directory.removesuffix(SLICE).rsplit("-", 1)[-1].replace("_", "-")
        uid = directory.removeprefix(POD_PREFIX)
        if uid == directory or not _COMPONENT.fullmatch(uid):
            return None
        return uid

    def _group(self, quality: QoSClass) -> CgroupName:
        kubepods = (*self.root, KUBEPODS)
        if quality is QoSClass.GUARANTEED:
            return kubepods
        return (*kubepods, quality.value.lower())
