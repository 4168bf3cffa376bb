"""Devices, the containers that have them, and the node's reports on them. Pure.

Source: docs/reference/behaviour-resources.md, ri, rn, rp.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.resources.plugins.model import PluginRefused

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


class DeviceRequest(Struct, frozen=True):
    """The devices of one resource that a container requests.

    Attributes:
        number: how many devices.
        mask: the NUMA nodes near which they should be; None: anywhere.
    """

    holder: DeviceHolder
    number: int
    mask: int | None = None


class Reservation(Struct, frozen=True):
    """Devices reserved for a container until their plugin has agreed."""

    request: DeviceRequest
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
        """The ids of all devices."""
        return frozenset(each for ids in self.by_node.values() for each in ids)


def by_node(devices: Iterable[PluginDevice]) -> dict[int, tuple[str, ...]]:
    """Return device ids by NUMA node; :data:`NO_NODE` has those near none."""
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


# The state of a node's devices.

FORGOTTEN_AFTER_S = 300.0
"""How long a plugin may be stopped before its resource is no longer the node's."""


class PluginResource(Struct):
    """A resource whose devices a plugin has listed, now or before.

    Attributes:
        listed: the plugin's last list, by id; empty until an earlier plugin is back.
        healthy: ids that may be allocated.
        unhealthy: ids that may not.
        stopped_at: since when there is no plugin; None: there is one. Event-loop seconds.
        returning: an earlier agent had its plugin, which has listed nothing to this one yet.
    """

    stopped_at: float | None
    returning: bool = False
    listed: dict[str, PluginDevice] = field(default_factory=dict)
    healthy: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()

    @property
    def has_topology(self) -> bool:
        """Whether it matters where a container with these devices runs."""
        return any(device.nodes for device in self.listed.values())


class Listing(Struct, frozen=True):
    """A plugin's new list, compared with the one before.

    Attributes:
        listed: devices by id.
        changes: ids of devices that are new or changed their health.
        changed: other devices can, or can't, be allocated than before.
        before: the list that it replaces.
    """

    listed: dict[str, PluginDevice]
    healthy: frozenset[str]
    unhealthy: frozenset[str]
    changes: frozenset[str]
    changed: bool
    before: dict[str, PluginDevice]


def compare(resource: PluginResource | None, devices: Iterable[PluginDevice]) -> Listing:
    """Return the changes in a plugin's new list; takes time in proportion to the list."""
    known = resource or PluginResource(None)
    listed = {device.id: device for device in devices}
    before, now = known.listed, listed.values()
    healthy = frozenset(device.id for device in now if device.healthy)
    unhealthy = frozenset(device.id for device in now if not device.healthy)
    changes = frozenset(
        device.id
        for device in now
        if device.id not in before or before[device.id].health != device.health
    )
    changed = resource is None or (healthy, unhealthy) != (known.healthy, known.unhealthy)
    return Listing(listed, healthy, unhealthy, changes, changed, before)


class DeviceState:
    """The devices of a node, their health, and their holders.

    A container keeps its devices even while a device, its plugin or its resource is absent.
    """

    def __init__(self) -> None:
        self.resources: dict[str, PluginResource] = {}
        self.bookings: dict[DeviceHolder, Booking] = {}
        self.reserved: dict[DeviceHolder, Reservation] = {}
        """Devices that are requested from plugins; no other container gets them."""

    # -- reports of plugins ----------------------------------------------------------------------

    def restored(
        self, resources: Iterable[str], bookings: Mapping[DeviceHolder, Booking], now: float
    ) -> None:
        """Restore what the last agent recorded: no device is present until its plugin returns."""
        self.resources = {name: PluginResource(now, returning=True) for name in resources}
        self.bookings = dict(bookings)

    def started(self, name: str) -> None:
        """Note that a plugin has registered the resource; its devices come with its next list."""
        if name in self.resources:
            self.resources[name].stopped_at = None

    def listed(self, name: str, devices: Iterable[PluginDevice]) -> frozenset[str]:
        """Take in a new list.

        Returns the uids of pods whose devices are new or changed their health.
        """
        return self.take_in(name, compare(self.resources.get(name), devices))

    def take_in(self, name: str, listing: Listing) -> frozenset[str]:
        """Take in a list that was compared with the current one; returns as :meth:`listed`."""
        resource = self.resources.setdefault(name, PluginResource(None))
        resource.listed = listing.listed
        resource.healthy, resource.unhealthy = listing.healthy, listing.unhealthy
        resource.returning = False
        return frozenset(
            holder.uid
            for holder, booking in self.bookings.items()
            if holder.resource == name and booking.ids & listing.changes
        )

    def stopped(self, name: str, now: float) -> None:
        """Note that the resource's plugin was removed: none of it can be allocated.

        The node shows it, with no devices, also if the plugin has never listed any.
        """
        resource = self.resources.setdefault(name, PluginResource(None))
        resource.stopped_at = now
        resource.unhealthy |= resource.healthy
        resource.healthy = frozenset()

    def expire(self, now: float) -> tuple[str, ...]:
        """Forget resources whose plugins stopped long ago; return their names."""
        removed = tuple(
            name
            for name, resource in self.resources.items()
            if resource.stopped_at is not None and now - resource.stopped_at >= FORGOTTEN_AFTER_S
        )
        for name in removed:
            del self.resources[name]
        return removed

    def expires_at(self) -> float | None:
        """Return when the next resource expires, in event-loop seconds, or None."""
        stops = [each.stopped_at for each in self.resources.values() if each.stopped_at is not None]
        return min(stops) + FORGOTTEN_AFTER_S if stops else None

    # -- holders -------------------------------------------------------------------------------

    def concerns(self, name: str) -> bool:
        """Whether a resource is a plugin's: registered, or held by a container."""
        return name in self.resources or any(each.resource == name for each in self.bookings)

    def returning(self, name: str) -> bool:
        """Whether the resource's plugin is known from an earlier agent and has not come back."""
        known = self.resources.get(name)
        return known is not None and known.returning

    def held_ids(self, name: str) -> frozenset[str]:
        """Ids that any container has, or is about to get."""
        held = (b.ids for holder, b in self.bookings.items() if holder.resource == name)
        soon = (r.ids for holder, r in self.reserved.items() if holder.resource == name)
        return frozenset[str]().union(*held, *soon)

    def ids_of(self, holder: DeviceHolder) -> frozenset[str]:
        """A container's devices of a resource, including those it is about to get."""
        found = self.bookings.get(holder) or self.reserved.get(holder)
        return frozenset() if found is None else found.ids

    def of_container(self, uid: str, container: str) -> dict[str, Booking]:
        """One container's devices, by resource, in name order."""
        return {
            holder.resource: booking
            for holder, booking in sorted(self.bookings.items(), key=lambda item: item[0])
            if holder.uid == uid and holder.container == container
        }

    def of_pod(self, uid: str) -> dict[str, frozenset[str]]:
        """Device ids of all containers of a pod, by resource."""
        found: dict[str, frozenset[str]] = {}
        for holder, booking in self.bookings.items():
            if holder.uid == uid:
                found[holder.resource] = found.get(holder.resource, frozenset()) | booking.ids
        return found

    def release_others(self, uids: Collection[str]) -> None:
        """Take back what all other pods have."""
        for held in (self.bookings, self.reserved):
            for holder in [each for each in held if each.uid not in uids]:
                held.pop(holder)


# The resources that device plugins may register.

VERSION = "v1beta1"

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_MAX_DOMAIN, _MAX_NAME = 253, 63
_REQUESTS = "requests."
"""The prefix that quotas add to a resource's name; a name that already has it is refused."""


class RegistrationRefused(PluginRefused):
    """A plugin can't be registered; the text is sent to it and logged."""


def check_version(versions: Collection[str]) -> None:
    """Raise RegistrationRefused when none of a plugin's versions is supported."""
    if VERSION not in versions:
        reported = ", ".join(versions)[:200] or "none"
        raise RegistrationRefused(
            f"requested API version {reported!r} is not supported by kubelet. "
            f"Supported version is {VERSION!r}"
        )


def check_resource(name: str) -> None:
    """Raise RegistrationRefused when a name is not that of an extended resource."""
    domain, _, rest = name.partition("/")
    good = (
        len(domain) + len(_REQUESTS) <= _MAX_DOMAIN
        and len(rest) <= _MAX_NAME
        and _DOMAIN.fullmatch(domain)
        and _NAME.fullmatch(rest)
        and not domain.startswith(_REQUESTS)
        and "kubernetes.io/" not in name
    )
    if not good:
        raise RegistrationRefused(
            f"the ResourceName {name[:320]!r} is invalid: it is not that of an extended resource, "
            "such as vendor.example/gpu"
        )


# The node's reports on devices: capacity, allocatable, and the health of those in use.

UNHEALTHY = "Unhealthy"


def capacity(state: DeviceState) -> dict[str, int]:
    """Count all devices by resource, including those that can't be allocated now."""
    return {name: len(each.healthy | each.unhealthy) for name, each in state.resources.items()}


def allocatable(state: DeviceState) -> dict[str, int]:
    """Count the devices that are or can be allocated, by resource."""
    return {name: len(each.healthy) for name, each in state.resources.items()}


def extended_resources(names: Collection[str]) -> frozenset[str]:
    """Return those of the names that are of extended resources."""
    return frozenset(name for name in names if "/" in name and "kubernetes.io/" not in name)


def resources_status(state: DeviceState, uid: str) -> Mapping[str, list[api.ResourceStatus]]:
    """Return allocatedResourcesStatus of each container of a pod that has devices."""
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
        reported: api.ResourceStatus = {"name": holder.resource, "resources": health}
        found.setdefault(holder.container, []).append(reported)
    return found


def nodes_by_device(booking: Booking) -> dict[str, tuple[int, ...]]:
    """Return the devices of a booking, each with the NUMA nodes it was near when allocated."""
    found: dict[str, tuple[int, ...]] = {}
    for node, ids in booking.by_node.items():
        for each in ids:
            found[each] = (*found.get(each, ()), *(() if node == NO_NODE else (node,)))
    return found


def healthy_devices(state: DeviceState) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the healthy devices by resource, each with the NUMA nodes that it is near."""
    return {
        name: {each: resource.listed[each].nodes for each in resource.healthy}
        for name, resource in state.resources.items()
        if resource.healthy
    }
