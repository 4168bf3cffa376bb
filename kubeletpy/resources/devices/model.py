"""Devices, and which containers have them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from kubeletpy.base.structs import Struct

HEALTHY = "Healthy"
NO_NODE = -1
"""Stands for the NUMA node of a device that has none."""


class PluginDevice(Struct, frozen=True):
    """One device, as its plugin lists it.

    Attributes:
        health: ``Healthy``; anything else is unhealthy.
        nodes: ids of the NUMA nodes that it is near.
    """

    id: str
    health: str = HEALTHY
    nodes: tuple[int, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether it may be allocated."""
        return self.health == HEALTHY


class DeviceHolder(NamedTuple):
    """The holder of devices: a container of a pod, for one resource."""

    uid: str
    container: str
    resource: str


class Wish(Struct, frozen=True):
    """How much of one resource a container requests.

    Attributes:
        number: how many devices.
        mask: the NUMA nodes near which they should be; None: anywhere.
    """

    holder: DeviceHolder
    number: int
    mask: int | None = None


class Reservation(Struct, frozen=True):
    """Devices reserved for a container until their plugin has agreed."""

    wish: Wish
    ids: frozenset[str]


class Booking(Struct, frozen=True, dict=True):
    """The devices of one resource that one container has.

    Attributes:
        by_node: NUMA node id (:data:`NO_NODE`) -> device ids, in the order of the checkpoint. A
            device near several nodes is listed under each.
        response: the plugin's ContainerAllocateResponse, as bytes: all that containers get.
    """

    by_node: Mapping[int, tuple[str, ...]]
    response: bytes

    @cached_property
    def ids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(each for ids in self.by_node.values() for each in ids)


def by_node(devices: Iterable[PluginDevice]) -> dict[int, tuple[str, ...]]:
    """Device ids by NUMA node."""
    found: dict[int, tuple[str, ...]] = {}
    for device in devices:
        for node in device.nodes or (NO_NODE,):
            found[node] = (*found.get(node, ()), device.id)
    return found


class AwaitedPlugins(Struct, frozen=True):
    """Resources of which a pod requests devices, and whose plugins have not come back.

    ``until``: event-loop seconds; then the pod is judged without them.
    """

    resources: tuple[str, ...]
    until: float
