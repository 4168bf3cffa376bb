"""The health of DRA devices: drivers' reports, how long they count, and pods' statuses. Pure.

Source: docs/reference/behaviour-resources.md, rv, rx; docs/reference/dra-health-v1.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_micro_time, parse_time
from kubeletpy.base.structs import Struct
from kubeletpy.base.text import scrub
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.model import ClaimDevice, Claims, ClaimUse

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
TIMEOUT_S = 30.0
"""How long a report counts, if the driver does not set it."""
MAX_TEXT = 1024
"""Bytes of a driver's message about a device."""
MAX_DEVICES = 16384
"""Per driver; reports on more are not kept."""
MAX_TIMEOUT_S = 10 * 365 * 86400.0
_STATES = {1: HEALTHY, 2: UNHEALTHY}
"""States by the number on the wire; 0 and unknown numbers are Unknown."""


class DeviceHealth(Struct, frozen=True):
    """A driver's report on a device. ``at`` is when, in Unix seconds; it counts ``timeout`` s."""

    health: str
    message: str
    at: float
    timeout: float = TIMEOUT_S

    @property
    def until(self) -> float:
        """When the report stops counting."""
        return self.at + self.timeout

    def now(self, now: float) -> tuple[str, str]:
        """Health and message at a moment."""
        return (self.health, self.message) if now <= self.until else (UNKNOWN, "")


DeviceKey = tuple[str, str]
"""Pool and device."""
Known = Mapping[str, Mapping[DeviceKey, DeviceHealth]]
"""Health of devices, by driver."""


def with_report(
    known: Mapping[DeviceKey, DeviceHealth], answer: Any, now: float
) -> tuple[dict[DeviceKey, DeviceHealth], set[DeviceKey]]:
    """Return the health of a driver's devices after a message, and the devices that changed.

    A message may be about some devices only; the others keep theirs.
    """
    merged, changed = dict(known), set()
    for each in answer.devices:
        key = (each.device.pool_name, each.device.device_name)
        if key not in merged and len(merged) >= MAX_DEVICES:
            continue
        seconds = float(each.health_check_timeout_seconds)
        timeout = min(seconds, MAX_TIMEOUT_S) if seconds > 0 else TIMEOUT_S
        state = _STATES.get(each.health, UNKNOWN)
        found = DeviceHealth(state, _cut(each.message), now, timeout)
        before = merged.get(key)
        if before is None or _reported_health(before, now) != _reported_health(found, now):
            changed.add(key)
        merged[key] = found
    return merged, changed


def _reported_health(health: DeviceHealth, now: float) -> tuple[str, str, float]:
    return (*health.now(now), health.timeout)


def _cut(text: str) -> str:
    data = scrub(text).encode()
    if len(data) <= MAX_TEXT:
        return data.decode()
    return data[: MAX_TEXT - 3].decode(errors="ignore") + "..."


def next_end(known: Known) -> float | None:
    """Return when the next report stops counting, or None."""
    ends = (each.until for devices in known.values() for each in devices.values())
    return min(ends, default=None)


def without_ended(
    known: Known, now: float
) -> tuple[dict[str, dict[DeviceKey, DeviceHealth]], set[tuple[str, DeviceKey]]]:
    """Return the reports still in force, and the devices whose reports have expired."""
    kept = {
        driver: {key: each for key, each in devices.items() if now <= each.until}
        for driver, devices in known.items()
    }
    ended = {
        (driver, key)
        for driver, devices in known.items()
        for key, each in devices.items()
        if now > each.until and each.health != UNKNOWN
    }
    return {driver: devices for driver, devices in kept.items() if devices}, ended


def users(claims: Claims, devices: Collection[tuple[str, DeviceKey]]) -> set[str]:
    """Return the uids of the pods that have one of these devices."""
    return {
        uid
        for claim in claims.values()
        if any(
            (driver, (each.pool, each.name)) in devices
            for driver, prepared in claim.drivers.items()
            for each in prepared
        )
        for uid in claim.pods
    }


def statuses(
    claims: Claims, known: Known, pod: Pod, uses: Iterable[ClaimUse], now: float, *, messages: bool
) -> dict[str, list[api.ResourceStatus]]:
    """Return allocatedResourcesStatus of each of a pod's containers that uses claims.

    ``messages``: whether to include the drivers' messages.
    """
    objects = {use.name: use.claim for use in uses}
    found: dict[str, list[api.ResourceStatus]] = {}
    for container in pod.containers:
        for requested in (container.get("resources") or {}).get("claims") or ():
            name, request = requested.get("name") or "", requested.get("request") or ""
            claim = claims.get((pod.namespace, objects.get(name, "")))
            if claim is None or pod.uid not in claim.pods:
                continue
            resources: dict[str, api.ResourceHealth] = {}
            for driver, devices in claim.drivers.items():
                for device in devices:
                    if _is_for(device, request):
                        reported = _reported(driver, device, known, now, messages=messages)
                        resources.setdefault(reported["resourceID"], reported)
            if resources:
                status: api.ResourceStatus = {
                    "name": f"claim:{name}/{request}" if request else f"claim:{name}",
                    "resources": list(resources.values()),
                }
                found.setdefault(container["name"], []).append(status)
    return found


def _is_for(device: ClaimDevice, request: str) -> bool:
    return not request or not device.requests or request.partition("/")[0] in device.requests


def _reported(
    driver: str, device: ClaimDevice, known: Known, now: float, *, messages: bool
) -> api.ResourceHealth:
    report = known.get(driver, {}).get((device.pool, device.name))
    health, message = report.now(now) if report is not None else (UNKNOWN, "")
    name = device.cdi[0] if device.cdi else f"{driver}/{device.pool}/{device.name}"
    reported: api.ResourceHealth = {"resourceID": name, "health": health}
    if messages and message:
        reported["message"] = message
    return reported


# The file dra_health_state.


def render(known: Known) -> str:
    """Return the text of a file with these reports."""
    return json.dumps(
        {
            driver: {"Devices": {"/".join(key): _entry(key, each) for key, each in found.items()}}
            for driver, found in sorted(known.items())
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _entry(key: DeviceKey, health: DeviceHealth) -> dict[str, Any]:
    return {
        "PoolName": key[0],
        "DeviceName": key[1],
        "Health": health.health,
        "LastUpdated": format_micro_time(health.at),
        "HealthCheckTimeout": int(health.timeout * 1e9),
        "Message": health.message,
    }


def parse_health(text: str) -> dict[str, dict[DeviceKey, DeviceHealth]]:
    """Return the reports in a file, or none for an unreadable one."""
    try:
        return {
            str(driver): {
                (str(each["PoolName"]), str(each["DeviceName"])): _read_entry(each)
                for each in list((state.get("Devices") or {}).values())[:MAX_DEVICES]
            }
            for driver, state in json.loads(text).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return {}


def _read_entry(entry: Mapping[str, Any]) -> DeviceHealth:
    timeout = float(entry.get("HealthCheckTimeout") or 0) / 1e9
    return DeviceHealth(
        entry["Health"] if entry["Health"] in (HEALTHY, UNHEALTHY) else UNKNOWN,
        _cut(str(entry.get("Message") or "")),
        parse_time(entry["LastUpdated"]),
        min(timeout, MAX_TIMEOUT_S) if timeout > 0 else TIMEOUT_S,
    )
