"""Devices that several claims share, each with a part of their capacity. Pure.

Source: consumable capacity of resource.k8s.io/v1 (``allowMultipleAllocations``). A request takes
the amount that it states for each capacity, rounded up by the capacity's policy. Without a stated
amount it takes the policy's default, or else all of the capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from kubeletpy.base.api.types import JSON
from kubeletpy_up.schema import formats

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""
Share = Mapping[str, str]
"""Amounts taken of each capacity of a device, as quantities."""


class Shared:
    """The shares that claims have of shared devices."""

    def __init__(self) -> None:
        self._holders: Counter[DeviceId] = Counter()
        self._taken: dict[DeviceId, Counter[str]] = {}

    def copy(self) -> Shared:
        """A copy that later changes do not affect."""
        made = Shared()
        made._holders = Counter(self._holders)
        made._taken = {device: Counter(taken) for device, taken in self._taken.items()}
        return made

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim has a share of a device."""
        return self._holders[device] > 0

    def fits(self, device: DeviceId, share: Share, spec: JSON) -> bool:
        """Whether a device has enough capacity left for a share."""
        taken = self._taken.get(device, Counter())
        return all(
            taken[name] + _amount(text) <= _amount(spec["capacity"][name]["value"])
            for name, text in share.items()
        )

    def add(self, device: DeviceId, share: Share) -> None:
        """Count a claim's share of a device."""
        self._holders[device] += 1
        self._taken.setdefault(device, Counter()).update(_amounts(share))

    def remove(self, device: DeviceId, share: Share) -> None:
        """Remove a device's share that was added before."""
        self._holders[device] -= 1
        self._taken[device].subtract(_amounts(share))


def share(device: JSON, request: JSON) -> Share | None:
    """The share that a request takes of a device, whatever others have of it.

    None if the device lacks a requested capacity, or its policy does not allow the amount.
    """
    requested = (request.get("capacity") or {}).get("requests") or {}
    offered = device.get("capacity") or {}
    if any(name not in offered for name in requested):
        return None
    found = {}
    for name, capacity in offered.items():
        policy = capacity.get("requestPolicy") or {}
        amount = _rounded(str(requested[name]), policy) if name in requested else None
        if amount is None:
            amount = str(policy.get("default") or capacity["value"])
        if not _allowed(amount, policy) or _amount(amount) > _amount(capacity["value"]):
            return None
        found[name] = formats.canonical(amount)
    return found


def _rounded(requested: str, policy: JSON) -> str:
    """An amount, rounded up to the next that the policy has."""
    between = policy.get("validRange") or {}
    if "min" in between:
        least = str(between["min"])
        if _amount(requested) < _amount(least):
            return least
        if between.get("step"):
            step, start = _whole(between["step"]), _whole(least)
            steps = -((start - _whole(requested)) // step)
            return formats.binary(start + step * steps)
        return requested
    for each in policy.get("validValues") or ():
        if _amount(requested) <= _amount(each):
            return str(each)
    return requested


def _allowed(amount: str, policy: JSON) -> bool:
    value = _amount(amount)
    if policy.get("default") is not None and value == _amount(policy["default"]):
        return True
    between = policy.get("validRange")
    if between:
        if between.get("max") is not None and value > _amount(between["max"]):
            return False
        step = between.get("step")
        return not step or (_whole(amount) - _whole(between["min"])) % _whole(step) == 0
    values = policy.get("validValues")
    return not values or any(value == _amount(each) for each in values)


def _amounts(share: Share) -> dict[str, Decimal]:
    return {name: _amount(text) for name, text in share.items()}


def _amount(text: object) -> Decimal:
    return formats.read(str(text))[0]


def _whole(text: object) -> int:
    return int(_amount(text).to_integral_value(ROUND_CEILING))
