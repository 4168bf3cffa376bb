"""Allocation of a node's devices to a claim. Pure.

First fit, with backtracking when a constraint or a later request can't be satisfied; the search
is bounded. Source: the structured parameters of resource.k8s.io/v1. Devices that have binding
conditions are not allocated; a claim that needs one gets an event with that reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers import device_pools
from kubeletpy_up.controllers.device_capacity import DeviceId, Share, Shared, share
from kubeletpy_up.controllers.device_pools import CounterId, Devices, Found, Taken
from kubeletpy_up.controllers.placement import tolerated
from kubeletpy_up.kinds import cel

MAX_RESULTS = 32
MAX_STEPS = 20_000
"""Limit of one search: enough for any node's devices, unless a claim is built to be hard."""
_KEEPS_AWAY = ("NoExecute", "NoSchedule")


class CannotAllocate(Exception):
    """No allocation is possible on this node (at present); the text is for the claim's owner."""


@dataclass(frozen=True, slots=True)
class Desired:
    """One request, or one of its alternatives."""

    name: str
    spec: JSON
    device_class: JSON


@dataclass(frozen=True, slots=True)
class _Choice:
    """A device for a request; ``share`` is the part that it takes of a shared device."""

    desired: Desired
    device: Found
    share: Share | None = None


@dataclass(slots=True)
class _Search:
    """The state of a search: free devices and counters, and the choices so far."""

    removed: Collection[DeviceId]
    shares: Shared
    room: Counter[CounterId]
    constraints: Sequence[JSON]
    chosen: list[_Choice] = field(default_factory=list)
    used: set[DeviceId] = field(default_factory=set)
    steps: int = 0


def allocate(
    claim: JSON,
    devices: Devices,
    classes: Mapping[str, JSON],
    taken: Taken,
    share_id: Callable[[], str],
) -> JSON:
    """The allocation of a claim, for its status.

    Args:
        devices: of the node.
        classes: by name.
        taken: what other claims have.
        share_id: a new name for a share of a device.

    Raises:
        CannotAllocate: no free device fits, or the request is not supported here.
    """
    requested = (claim.get("spec") or {}).get("devices") or {}
    requests = requested.get("requests") or ()
    alternatives = [_alternatives(request, classes) for request in requests]
    room = device_pools.left(devices, taken)
    search = _Search(taken.devices, taken.shares.copy(), room, requested.get("constraints") or ())
    why: list[str] = []
    if not _requests(alternatives, devices, search, why):
        reported = (
            "; ".join(dict.fromkeys(why)) or "no combination of devices meets the constraints"
        )
        if devices.incomplete:
            reported += f" (pools that are being changed: {', '.join(devices.incomplete)})"
        raise CannotAllocate(reported)
    return _result(requested, search.chosen, share_id)


def _alternatives(request: JSON, classes: Mapping[str, JSON]) -> list[Desired]:
    """The alternatives of a request, best first. Raises CannotAllocate: a class is missing."""
    exactly = request.get("exactly")
    if exactly is not None:
        return [_desired(request["name"], exactly, classes)]
    return [
        _desired(f"{request['name']}/{each['name']}", each, classes)
        for each in request.get("firstAvailable") or ()
    ]


def _desired(name: str, spec: JSON, classes: Mapping[str, JSON]) -> Desired:
    named = spec.get("deviceClassName") or ""
    if named not in classes:
        raise CannotAllocate(f"request {name}: device class {named} does not exist")
    return Desired(name, spec, classes[named])


def _requests(
    alternatives: list[list[Desired]], devices: Devices, search: _Search, why: list[str]
) -> bool:
    """Choose devices for all remaining requests."""
    if not alternatives:
        return True
    for desired in alternatives[0]:
        fitting = [each for each in devices.all if _selected(desired, each)]
        admin = bool(desired.spec.get("adminAccess"))
        large = [each for each in fitting if _has_capacity(desired, each, search)]
        usable = [
            each
            for each in large
            if (admin or each.id not in search.removed) and _tolerated(each.spec, desired.spec)
        ]
        whole = desired.spec.get("allocationMode") == "All"
        count = len(large) if whole else int(desired.spec.get("count") or 1)
        if whole and (not large or devices.incomplete):
            why.append(f"request {desired.name}: it requires all devices, and there are none yet")
            continue
        if count > len(usable) or len(search.chosen) + count > MAX_RESULTS:
            why.append(_shortage(desired, count, fitting, usable, devices))
            continue
        for _ in _choices(desired, usable, count, 0, search):
            if _requests(alternatives[1:], devices, search, why):
                return True
    return False


def _choices(
    desired: Desired, usable: Sequence[Found], count: int, start: int, search: _Search
) -> Iterator[None]:
    """Choose devices, in each possible way once. Each choice is undone afterwards."""
    if count == 0:
        yield
        return
    for index in range(start, len(usable) - count + 1):
        search.steps += 1
        if search.steps > MAX_STEPS:
            raise CannotAllocate(f"request {desired.name}: too many ways to choose its devices")
        device = usable[index]
        undo = _take(desired, device, search)
        if undo is None:
            continue
        yield from _choices(desired, usable, count - 1, index + 1, search)
        undo()


def _take(desired: Desired, device: Found, search: _Search) -> Callable[[], None] | None:
    """Choose a device and return a function that undoes it; None if the device doesn't fit."""
    if not all(_constraint(each, desired, device, search.chosen) for each in search.constraints):
        return None
    if device.shared:
        return _take_share(desired, device, search)
    admin = bool(desired.spec.get("adminAccess"))
    if not admin and (device.id in search.used or not _has_room(device, search)):
        return None
    search.chosen.append(_Choice(desired, device))
    if not admin:
        search.used.add(device.id)
        search.room.subtract(device.uses)

    def undo() -> None:
        search.chosen.pop()
        if not admin:
            search.used.discard(device.id)
            search.room.update(device.uses)

    return undo


def _take_share(desired: Desired, device: Found, search: _Search) -> Callable[[], None] | None:
    part = share(device.spec, desired.spec)
    if part is None or not search.shares.fits(device.id, part, device.spec):
        return None
    uses = {} if search.shares.holds(device.id) else device.uses
    if uses and not _has_room(device, search):
        return None
    search.chosen.append(_Choice(desired, device, part))
    search.shares.add(device.id, part)
    search.room.subtract(uses)

    def undo() -> None:
        search.chosen.pop()
        search.shares.remove(device.id, part)
        search.room.update(uses)

    return undo


def _has_room(device: Found, search: _Search) -> bool:
    return all(search.room[key] >= amount for key, amount in device.uses.items())


def _has_capacity(desired: Desired, device: Found, search: _Search) -> bool:
    part = share(device.spec, desired.spec)
    if part is None:
        return False
    return not device.shared or search.shares.fits(device.id, part, device.spec)


def _constraint(
    constraint: JSON, desired: Desired, device: Found, chosen: Sequence[_Choice]
) -> bool:
    names = constraint.get("requests")
    if not _concerns(names, desired.name):
        return True
    attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute") or ""
    value = _attribute(device, attribute)
    if value is None:
        return False
    others = [
        _attribute(each.device, attribute) for each in chosen if _concerns(names, each.desired.name)
    ]
    if constraint.get("matchAttribute"):
        return all(other == value for other in others)
    return value not in others


def _concerns(names: Sequence[str] | None, name: str) -> bool:
    return not names or name in names or name.partition("/")[0] in names


def _attribute(device: Found, name: str) -> Any:
    """The value of an attribute by its full name; None if there is none."""
    attributes = device.spec.get("attributes") or {}
    domain, _, plain = name.rpartition("/")
    found = attributes.get(name)
    if found is None and domain == device.driver:
        found = attributes.get(plain)
    return found


def _selected(desired: Desired, device: Found) -> bool:
    """Whether class and request select a device. Raises CannotAllocate: it cannot be determined."""
    of_class = (desired.device_class.get("spec") or {}).get("selectors") or ()
    selectors = [*of_class, *(desired.spec.get("selectors") or ())]
    if not selectors:
        return True
    try:
        value = cel.device_value(device.driver, device.spec)
        return all(cel.selects(each["cel"]["expression"], value) for each in selectors)
    except ValueError as error:
        reported = "/".join(device.id)
        raise CannotAllocate(f"request {desired.name}: device {reported}: {error}") from None


def _tolerated(device: JSON, request: JSON) -> bool:
    tolerations = request.get("tolerations") or ()
    return all(
        tolerated(taint, tolerations)
        for taint in device.get("taints") or ()
        if taint.get("effect") in _KEEPS_AWAY
    )


def _shortage(
    desired: Desired,
    count: int,
    fitting: Sequence[Found],
    usable: Sequence[Found],
    devices: Devices,
) -> str:
    named = desired.spec["deviceClassName"]
    small = sum(share(each.spec, desired.spec) is None for each in fitting)
    tainted = sum(not _tolerated(each.spec, desired.spec) for each in fitting)
    text = (
        f"request {desired.name}: {count} of class {named} requested, {len(fitting)} selected, "
        f"{len(usable)} free"
    )
    if small:
        text += f", {small} without the capacity"
    if tainted:
        text += f", {tainted} tainted"
    if devices.left_out:
        reasons = ", ".join(sorted(set(devices.left_out.values())))
        text += f"; {len(devices.left_out)} more cannot be given here: {reasons}"
    return text


def _result(requested: JSON, chosen: Sequence[_Choice], share_id: Callable[[], str]) -> JSON:
    results, configs = [], []
    for choice in chosen:
        desired = choice.desired
        driver, pool, name = choice.device.id
        result: JSON = {"request": desired.name, "driver": driver, "pool": pool, "device": name}
        if desired.spec.get("adminAccess"):
            result["adminAccess"] = True
        if desired.spec.get("tolerations"):
            result["tolerations"] = desired.spec["tolerations"]
        if choice.share is not None:
            result["shareID"] = share_id()
            if choice.share:
                result["consumedCapacity"] = dict(choice.share)
        results.append(result)
    for desired in {each.desired.name: each.desired for each in chosen}.values():
        for config in (desired.device_class.get("spec") or {}).get("config") or ():
            configs.append({"source": "FromClass", "requests": [desired.name], **config})
    names = {each.desired.name for each in chosen}
    for config in requested.get("config") or ():
        if any(_concerns(config.get("requests"), name) for name in names):
            configs.append({"source": "FromClaim", **config})
    devices: JSON = {"results": results}
    if configs:
        devices["config"] = configs
    allocation: JSON = {"devices": devices}
    selector = _node_selector([each.device for each in chosen])
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _node_selector(devices: Sequence[Found]) -> JSON | None:
    """The nodes that have all the devices: a single one if any device is on one only."""
    selectors = [each.node_selector for each in devices if each.node_selector is not None]
    for selector in selectors:
        if any("matchFields" in term for term in selector["nodeSelectorTerms"]):
            return selector
    terms = [term for selector in selectors for term in selector["nodeSelectorTerms"]]
    expressions = [each for term in terms for each in term.get("matchExpressions") or ()]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]} if expressions else None
