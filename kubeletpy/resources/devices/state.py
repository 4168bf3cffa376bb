"""All that is known about devices: which exist, their health, and which are in use. Pure.

Source: docs/reference/behaviour-resources.md, rn. Must never forget that a container has a device
because the device, its plugin or its resource is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kubeletpy.base.structs import Struct, field
from kubeletpy.resources.devices.model import Booking, DeviceHolder, PluginDevice, Reservation

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
        news: ids of devices that are new or changed their health.
        changed: other devices can, or can't, be allocated than before.
        before: the list that it replaces.
    """

    listed: dict[str, PluginDevice]
    healthy: frozenset[str]
    unhealthy: frozenset[str]
    news: frozenset[str]
    changed: bool
    before: dict[str, PluginDevice]


def compare(resource: PluginResource | None, devices: Iterable[PluginDevice]) -> Listing:
    """The changes in a plugin's new list; takes time in proportion to the list."""
    known = resource or PluginResource(None)
    listed = {device.id: device for device in devices}
    before, now = known.listed, listed.values()
    healthy = frozenset(device.id for device in now if device.healthy)
    unhealthy = frozenset(device.id for device in now if not device.healthy)
    news = frozenset(
        device.id
        for device in now
        if device.id not in before or before[device.id].health != device.health
    )
    changed = resource is None or (healthy, unhealthy) != (known.healthy, known.unhealthy)
    return Listing(listed, healthy, unhealthy, news, changed, before)


class DeviceState:
    """The devices of a node."""

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
        """A plugin has registered the resource. Its devices are those of its next list."""
        if name in self.resources:
            self.resources[name].stopped_at = None

    def listed(self, name: str, devices: Iterable[PluginDevice]) -> frozenset[str]:
        """Take in a new list; the uids of pods whose devices are new or changed their health."""
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
            if holder.resource == name and booking.ids & listing.news
        )

    def stopped(self, name: str, now: float) -> None:
        """The resource's plugin was removed: none of it can be allocated.

        The node shows it, with no devices, also if the plugin has never listed any.
        """
        resource = self.resources.setdefault(name, PluginResource(None))
        resource.stopped_at = now
        resource.unhealthy |= resource.healthy
        resource.healthy = frozenset()

    def expire(self, now: float) -> tuple[str, ...]:
        """Forget resources whose plugins stopped long ago; return their names."""
        gone = tuple(
            name
            for name, resource in self.resources.items()
            if resource.stopped_at is not None and now - resource.stopped_at >= FORGOTTEN_AFTER_S
        )
        for name in gone:
            del self.resources[name]
        return gone

    def expires_at(self) -> float | None:
        """When there will next be something to forget."""
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
