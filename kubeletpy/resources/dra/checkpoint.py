"""The file ``dra_manager_state`` in the kubelet's own form, so that a node can change agents. Pure.

Whatever a file contains, only StateError is raised. Source:
docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo
from kubeletpy.resources.placement.state import StateError, reading, unseal

KIND, API_VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"


def render(claims: Iterable[ClaimInfo]) -> str:
    """Return the text of a file with these claims."""
    entries = [_entry(claim) for claim in sorted(claims, key=lambda each: each.key)]
    data = json.dumps(
        {"kind": KIND, "apiVersion": API_VERSION, "ClaimInfoStateList": entries or None},
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return json.dumps(
        {"Data": data, "Checksum": checksum(data)}, separators=(",", ":"), ensure_ascii=False
    )


def parse_checkpoint(text: str) -> list[ClaimInfo]:
    """The claims in a file. Raises StateError."""
    with reading():
        found = json.loads(unseal(text, checksum, "Data", "Checksum"))
        if (found["kind"], found["apiVersion"]) != (KIND, API_VERSION):
            raise StateError(
                f"it is a {found['kind']} of {found['apiVersion']}, not of {API_VERSION}"
            )
        return [_read_entry(entry) for entry in found["ClaimInfoStateList"] or ()]


def checksum(data: str) -> int:
    """Return the CRC-32 of the text."""
    return zlib.crc32(data.encode("utf-8", "replace"))


def _entry(claim: ClaimInfo) -> dict[str, Any]:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pods)},
        "DriverState": {
            driver: {
                "Devices": [_device(device) for device in devices] or None,
                **_skipped(claim, driver),
            }
            for driver, devices in sorted(claim.drivers.items())
        },
    }


def _skipped(claim: ClaimInfo, driver: str) -> dict[str, list[str]]:
    skips = claim.skips.get(driver)
    return {"skipNodeOperations": list(skips)} if skips else {}


def _device(device: ClaimDevice) -> dict[str, Any]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.name,
        "ShareID": device.share,
        "RequestNames": list(device.requests) or None,
        "CDIDeviceIDs": list(device.cdi) or None,
    }


def _read_entry(entry: Mapping[str, Any]) -> ClaimInfo:
    drivers = {
        _text(name): tuple(_read_device(each) for each in (state or {}).get("Devices") or ())
        for name, state in (entry.get("DriverState") or {}).items()
    }
    return ClaimInfo(
        _text(entry["ClaimUID"]),
        _text(entry["ClaimName"]),
        _text(entry["Namespace"]),
        frozenset(map(_text, entry.get("PodUIDs") or {})),
        drivers,
        restored=True,
        skips={
            _text(name): tuple(map(_text, skipped))
            for name, state in (entry.get("DriverState") or {}).items()
            if (skipped := (state or {}).get("skipNodeOperations"))
        },
    )


def _read_device(entry: Mapping[str, Any]) -> ClaimDevice:
    share = entry.get("ShareID")
    return ClaimDevice(
        _text(entry.get("PoolName") or ""),
        _text(entry.get("DeviceName") or ""),
        tuple(map(_text, entry.get("RequestNames") or ())),
        tuple(map(_text, entry.get("CDIDeviceIDs") or ())),
        None if share is None else _text(share),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise StateError(f"{value!r:.40} is no text")
    return value
