"""The node's reports on devices: capacity, allocatable, and the health of those in use.

Pure. Source: docs/reference/behaviour-resources.md, ri, rp.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.resources.devices.model import HEALTHY, NO_NODE, Booking
from kubeletpy.resources.devices.state import DeviceState

UNHEALTHY = "Unhealthy"


def capacity(state: DeviceState) -> dict[str, int]:
    """Number of all devices by resource, including those that can't be allocated now."""
    return {name: len(each.healthy | each.unhealthy) for name, each in state.resources.items()}


def allocatable(state: DeviceState) -> dict[str, int]:
    """Number of devices that are or can be allocated, by resource."""
    return {name: len(each.healthy) for name, each in state.resources.items()}


def extended(names: Collection[str]) -> frozenset[str]:
    """Those that are extended resources."""
    return frozenset(name for name in names if "/" in name and "kubernetes.io/" not in name)


def resources_status(state: DeviceState, uid: str) -> Mapping[str, list[api.ResourceStatus]]:
    """allocatedResourcesStatus of each container of a pod that has devices."""
    found: dict[str, list[api.ResourceStatus]] = {}
    for holder, booking in sorted(state.bookings.items(), key=lambda item: item[0]):
        if holder.uid != uid:
            continue
        resource = state.resources.get(holder.resource)
        health: list[api.ResourceHealth] = []
        for each in sorted(booking.ids):
            listed = resource.listed.get(each) if resource is not None else None
            healthy = listed is None or listed.healthy
            health.append({"resourceID": each, "health": HEALTHY if healthy else UNHEALTHY})
        shown: api.ResourceStatus = {"name": holder.resource, "resources": health}
        found.setdefault(holder.container, []).append(shown)
    return found


def near(booking: Booking) -> dict[str, tuple[int, ...]]:
    """The devices of a booking, and the NUMA nodes that each was near when allocated."""
    found: dict[str, tuple[int, ...]] = {}
    for node, ids in booking.by_node.items():
        for each in ids:
            found[each] = (*found.get(each, ()), *(() if node == NO_NODE else (node,)))
    return found


def healthy(state: DeviceState) -> dict[str, dict[str, tuple[int, ...]]]:
    """Healthy devices by resource, each with the NUMA nodes that it is near."""
    return {
        name: {each: resource.listed[each].nodes for each in resource.healthy}
        for name, resource in state.resources.items()
        if resource.healthy
    }
