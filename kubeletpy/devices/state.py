"""All that is known of devices: those there are, how they are, and who has them. Pure.

Source: docs/reference/behaviour-resources.md, rn. Must never forget that a container has a device
because the device, its plugin or its resource is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kubeletpy.devices.model import Booking, Device, Holder

FORGOTTEN_AFTER_S = 300.0
"""A plugin that has stopped for that long, its resource is no longer the node's."""


@dataclass(slots=True)
class Resource:
    """One resource of which a plugin has listed the devices, now or before.

    Attributes:
        listed: the plugin's last list, by id; empty while a plugin of before is not back.
        healthy: ids that may be given.
        unhealthy: ids that may not.
        stopped_at: since when there is no plugin; None: there is one. The loop's seconds.
    """

    stopped_at: float | None
    listed: dict[str, Device] = field(default_factory=dict)
    healthy: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()

    @property
    def has_topology(self) -> bool:
        """Whether it matters where a container of these devices runs."""
        return any(device.nodes for device in self.listed.values())


class DeviceState:
    """The devices of a node."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.bookings: dict[Holder, Booking] = {}
        self._reserved: dict[str, set[str]] = {}
        """Ids that a plugin is being asked for."""

    # -- what plugins say ----------------------------------------------------------------------

    def restored(
        self, resources: Iterable[str], bookings: Mapping[Holder, Booking], now: float
    ) -> None:
        """What was known when the agent ended: no device is there until its plugin returns."""
        self.resources = {name: Resource(now) for name in resources}
        self.bookings = dict(bookings)

    def started(self, name: str) -> None:
        """A plugin has registered the resource. Its devices are those of its next list."""
        if name in self.resources:
            self.resources[name].stopped_at = None

    def listed(self, name: str, devices: Iterable[Device]) -> frozenset[str]:
        """This is what there is now; the uids of pods whose devices are new or feel different."""
        resource = self.resources.setdefault(name, Resource(None))
        before, resource.listed = resource.listed, {device.id: device for device in devices}
        now = resource.listed.values()
        resource.healthy = frozenset(device.id for device in now if device.healthy)
        resource.unhealthy = frozenset(device.id for device in now if not device.healthy)
        news = {
            device.id
            for device in now
            if device.id not in before or before[device.id].health != device.health
        }
        return frozenset(
            holder.uid
            for holder, booking in self.bookings.items()
            if holder.resource == name and booking.ids & news
        )

    def stopped(self, name: str, now: float) -> None:
        """The resource has no plugin any more: nothing of it can be given."""
        resource = self.resources.get(name)
        if resource is None:
            return
        resource.stopped_at = now
        resource.unhealthy |= resource.healthy
        resource.healthy = frozenset()

    def expire(self, now: float) -> tuple[str, ...]:
        """Forget resources whose plugins have stopped for long; their names."""
        gone = tuple(
            name
            for name, resource in self.resources.items()
            if resource.stopped_at is not None and now - resource.stopped_at >= FORGOTTEN_AFTER_S
        )
        for name in gone:
            del self.resources[name]
        return gone

    def expires_at(self) -> float | None:
        """When there is something to forget next."""
        stops = [each.stopped_at for each in self.resources.values() if each.stopped_at is not None]
        return min(stops) + FORGOTTEN_AFTER_S if stops else None

    # -- who has what --------------------------------------------------------------------------

    def concerns(self, name: str) -> bool:
        """Whether a resource is one of plugins: registered, or held by somebody."""
        return name in self.resources or any(each.resource == name for each in self.bookings)

    def taken(self, name: str) -> frozenset[str]:
        """Ids that somebody has, or is about to get."""
        held = (b.ids for holder, b in self.bookings.items() if holder.resource == name)
        return frozenset(self._reserved.get(name, ())).union(*held)

    def reserve(self, name: str, ids: Collection[str]) -> None:
        """Give these ids to nobody else until :meth:`let_go`."""
        self._reserved.setdefault(name, set()).update(ids)

    def let_go(self, name: str, ids: Collection[str]) -> None:
        """The plugin has answered for these ids."""
        self._reserved[name].difference_update(ids)
        if not self._reserved[name]:
            del self._reserved[name]

    def of_container(self, uid: str, container: str) -> dict[str, Booking]:
        """What one container has, by resource, in the order of their names."""
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

    def keep(self, uids: Collection[str]) -> None:
        """Take back what all other pods have."""
        gone = [holder for holder in self.bookings if holder.uid not in uids]
        for holder in gone:
            del self.bookings[holder]
