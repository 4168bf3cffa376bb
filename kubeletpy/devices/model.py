"""Devices, and who has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

HEALTHY = "Healthy"
NO_NODE = -1
"""Stands for the NUMA node of a device that has none."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device, as its plugin lists it.

    Attributes:
        health: ``Healthy``; anything else is not.
        nodes: ids of the NUMA nodes that it is near to.
    """

    id: str
    health: str = HEALTHY
    nodes: tuple[int, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether it may be given to anybody."""
        return self.health == HEALTHY


class Holder(NamedTuple):
    """Whose devices they are: of which resource, in which container of which pod."""

    uid: str
    container: str
    resource: str


@dataclass(frozen=True)
class Booking:
    """The devices of one resource that one container has.

    Attributes:
        by_node: NUMA node id (:data:`NO_NODE`) -> device ids, in the order of the checkpoint. A
            device near to several nodes is there several times.
        response: the plugin's ContainerAllocateResponse, as bytes: all that containers get.
    """

    by_node: Mapping[int, tuple[str, ...]]
    response: bytes

    @cached_property
    def ids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(each for ids in self.by_node.values() for each in ids)


def by_node(devices: Iterable[Device]) -> dict[int, tuple[str, ...]]:
    """Device ids by NUMA node."""
    found: dict[int, tuple[str, ...]] = {}
    for device in devices:
        for node in device.nodes or (NO_NODE,):
            found[node] = (*found.get(node, ()), device.id)
    return found
