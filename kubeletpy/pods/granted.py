"""Resources that the node has granted to a container: devices, CPUs, memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct, field


class DeviceNode(Struct, frozen=True):
    """A device of the node that a container gets. Permissions: a subset of ``rwm``."""

    container_path: str
    host_path: str
    permissions: str


class Placement(Struct, frozen=True):
    """Where on the machine a container runs. Sets are lists of ids (``0-1,4``); empty: anywhere."""

    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    no_cfs_quota: bool = False
    """Its CPUs are exclusive: it is not throttled when it reaches its CPU limit."""


NOWHERE = Placement()
"""Nothing in particular."""


class HeldResource(Struct, frozen=True):
    """Part of the machine that a container has, for people.

    Attributes:
        resource: as the container requests it: ``cpu``, ``memory``, ``vendor.example/gpu``.
        what: which CPUs or devices, or how many bytes.
        nodes: ids of the NUMA nodes they belong to.
    """

    container: str
    resource: str
    what: str
    nodes: tuple[int, ...] = ()


class DeviceCounts(Struct, frozen=True):
    """Plugin devices of a node, by resource: all of them, and those that can be allocated."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


NO_DEVICES = DeviceCounts()
