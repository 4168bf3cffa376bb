"""What a container has been granted of the node: devices, CPUs, memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the node that a container gets. Permissions: of ``rwm``, cgroup permissions."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Where on the machine a container runs. Sets are lists of ids (``0-1,4``); empty: anywhere."""

    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    no_cfs_quota: bool = False
    """Its CPUs are its own: it is not stopped when it has used as much time as its limit says."""


NOWHERE = Placement()
"""Nothing in particular."""


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Devices of plugins that a node has, by resource: all, and those that can be given."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


NO_DEVICES = DeviceCounts()
