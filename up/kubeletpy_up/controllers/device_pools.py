"""Which devices a node has, and which of them are taken. Pure.

Source: the structured parameters of resource.k8s.io/v1: slices make up pools; only a pool's newest
generation counts, and only once all its slices exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers.device_capacity import DeviceId, Shared
from kubeletpy_up.controllers.placement import matches_node
from kubeletpy_up.schema import formats

CounterId = tuple[str, str, str, str]
"""Driver, pool, counter set, counter."""


@dataclass(frozen=True, slots=True)
class Found:
    """A device that a node has.

    Attributes:
        spec: the device as its slice lists it.
        node_selector: of the nodes that have it; None: all.
        uses: what it takes of the counters that devices share.
    """

    id: DeviceId
    spec: JSON
    node_selector: JSON | None = None
    uses: Mapping[CounterId, Decimal] = field(default_factory=dict)

    @property
    def driver(self) -> str:
        """The driver whose device it is."""
        return self.id[0]

    @property
    def shared(self) -> bool:
        """Whether several claims may have it, each a share of its capacity."""
        return bool(self.spec.get("allowMultipleAllocations"))


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that a node has.

    Attributes:
        incomplete: pools that are being changed, as ``driver/pool``.
        left_out: devices that only a newer allocator can allocate, with the reason.
    """

    all: Sequence[Found] = ()
    counters: Mapping[CounterId, Decimal] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()
    left_out: Mapping[DeviceId, str] = field(default_factory=dict)


def on_node(node: JSON, slices: Iterable[JSON]) -> Devices:
    """The devices of a node, in the order of their slices' names."""
    pools: dict[tuple[str, str], list[JSON]] = {}
    for each in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
        pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    found: list[Found] = []
    counters: dict[CounterId, Decimal] = {}
    incomplete: list[str] = []
    left_out: dict[DeviceId, str] = {}
    for (driver, pool), every in pools.items():
        newest = max(_generation(each) for each in every)
        members = [each for each in every if _generation(each) == newest]
        here = [(d, w) for each in members for d, w in _here(node, each)]
        if len(members) != members[0]["spec"]["pool"].get("resourceSliceCount"):
            if here:
                incomplete.append(f"{driver}/{pool}")
            continue
        for each in members:
            counters.update(_counters(driver, pool, each["spec"].get("sharedCounters"), "name"))
        for device, where in here:
            name = (driver, pool, str(device["name"]))
            if device.get("bindingConditions"):
                left_out[name] = "it has binding conditions"
            else:
                uses = _counters(driver, pool, device.get("consumesCounters"), "counterSet")
                found.append(Found(name, device, where, uses))
    return Devices(tuple(found), counters, tuple(incomplete), left_out)


@dataclass(frozen=True, slots=True)
class Taken:
    """The devices that claims have, alone or in shares.

    Attributes:
        devices: those that a claim has for itself.
        shares: of those that several have.
    """

    devices: set[DeviceId] = field(default_factory=set)
    shares: Shared = field(default_factory=Shared)

    def add(self, claim: JSON) -> None:
        """Count what a claim has; admin access takes nothing of a device that is not shared."""
        for result in _results(claim):
            device = (result["driver"], result["pool"], result["device"])
            if result.get("shareID"):
                self.shares.add(device, result.get("consumedCapacity") or {})
            elif not result.get("adminAccess"):
                self.devices.add(device)


def taken(claims: Iterable[JSON]) -> Taken:
    """The devices that these claims have."""
    found = Taken()
    for claim in claims:
        found.add(claim)
    return found


def left(devices: Devices, removed: Taken) -> Counter[CounterId]:
    """The remaining counters that devices share.

    A device counts once, however many claims have a share of it.
    """
    room: Counter[CounterId] = Counter()
    room.update(devices.counters)
    for each in devices.all:
        if each.id in removed.devices or removed.shares.holds(each.id):
            room.subtract(each.uses)
    return room


def _results(claim: JSON) -> Iterable[Any]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _generation(resource_slice: JSON) -> int:
    return int(resource_slice["spec"]["pool"].get("generation") or 0)


def _here(node: JSON, resource_slice: JSON) -> Iterable[tuple[JSON, JSON | None]]:
    """The devices of a slice that a node has, each with its selector of nodes."""
    spec = resource_slice["spec"]
    for device in spec.get("devices") or ():
        about = device if spec.get("perDeviceNodeSelection") else spec
        if about.get("allNodes"):
            yield device, None
        elif about.get("nodeName"):
            if about["nodeName"] == node["metadata"]["name"]:
                yield device, one_node(about["nodeName"])
        elif about.get("nodeSelector") and matches_node(about["nodeSelector"], node):
            yield device, about["nodeSelector"]


def one_node(name: str) -> JSON:
    """A selector for one node."""
    field_is = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field_is]}]}


def _counters(
    driver: str, pool: str, sets: Iterable[JSON] | None, set_name: str
) -> dict[CounterId, Decimal]:
    """The counters of some sets; ``set_name``: the field that has the name of a set."""
    return {
        (driver, pool, each[set_name], name): formats.read(str(counter["value"]))[0]
        for each in sets or ()
        for name, counter in each["counters"].items()
    }
