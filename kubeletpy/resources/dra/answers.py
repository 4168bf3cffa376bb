"""Requests to a driver and its answers, as messages of either version. Pure.

Source: docs/reference/dra-v1.json; docs/reference/dra-v1beta1.json;
docs/reference/dra-health-v1.json; docs/reference/behaviour-resources.md, ru, rv.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from types import ModuleType
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import scrub
from kubeletpy.remote.generated import (
    dra_health_pb2,
    dra_health_v1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
)
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo

SERVICES: dict[str, ModuleType] = {"v1.DRAPlugin": dra_v1_pb2, "v1beta1.DRAPlugin": dra_v1beta1_pb2}
"""Modules by the names that a driver passes when it registers."""
HEALTH_SERVICES: dict[str, ModuleType] = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_pb2,
}
"""The modules of services that report the health of devices, in the order of preference."""
UNADVERTISED_HEALTH = "v1alpha1.DRAResourceHealth"
"""Tried of a driver that names none: before Kubernetes 1.37 drivers did not have to."""
MAX_DEVICES = 4096
"""Per claim: more than an allocation can have (32 results), times what a driver may add."""
_CDI = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?",
    re.ASCII,
)
_MAX_CDI = 512
MAX_NAMES = 4096
"""CDI devices, and names of requests, of all devices of a claim."""
_MAX_NAME = 253
"""Characters of a pool's, a device's or a request's name, and of a share's id."""


class BadDraAnswer(ValueError):
    """A driver's answer that cannot be used for a claim; the text contains the reason."""


class ClaimAnswers(Struct, frozen=True):
    """One answer to a call for several claims, by the claims' uids."""

    devices: dict[str, tuple[ClaimDevice, ...]]
    errors: dict[str, str]


def service(versions: Sequence[str]) -> str | None:
    """Return the first of the plugin's services that is known here, or None."""
    return next((version for version in versions if version in SERVICES), None)


def health_service(versions: Collection[str]) -> str:
    """Return the health service of a driver that names these services."""
    return next((each for each in HEALTH_SERVICES if each in versions), UNADVERTISED_HEALTH)


def request(version: str, name: str, claims: Iterable[ClaimInfo]) -> Any:
    """Make the request ``NodePrepareResources`` or ``NodeUnprepareResources`` for these claims."""
    messages = SERVICES[version]
    requested = [
        messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)
        for claim in claims
    ]
    return getattr(messages, f"{name}Request")(claims=requested)


def claim_answers(answer: Any, claims: Iterable[ClaimInfo]) -> ClaimAnswers:
    """Return devices (none for unprepare) or an error for each claim. Silence is an error."""
    found = ClaimAnswers({}, {})
    for claim in claims:
        if claim.uid not in answer.claims:
            found.errors[claim.uid] = "the driver did not answer for it"
        elif error := answer.claims[claim.uid].error:
            found.errors[claim.uid] = scrub(error)
        else:
            try:
                found.devices[claim.uid] = _devices(answer.claims[claim.uid])
            except BadDraAnswer as bad:
                found.errors[claim.uid] = str(bad)
    return found


def _devices(answer: Any) -> tuple[ClaimDevice, ...]:
    devices = getattr(answer, "devices", ())
    if len(devices) > MAX_DEVICES:
        raise BadDraAnswer(f"the driver named {len(devices)} devices")
    names = sum(len(each.cdi_device_ids) + len(each.request_names) for each in devices)
    if names > MAX_NAMES:
        raise BadDraAnswer(
            f"the driver gave {names} CDI devices and requests, more than {MAX_NAMES}; the claim "
            "is not prepared"
        )
    return tuple(_device(each) for each in devices)


def _device(device: Any) -> ClaimDevice:
    for name in device.cdi_device_ids:
        if len(name) > _MAX_CDI or _CDI.fullmatch(name) is None:
            raise BadDraAnswer(f"the driver gave {name[:80]!r}, which is no name of a CDI device")
    named = [("pool_name", device.pool_name), ("device_name", device.device_name)]
    named += [("request_names", each) for each in device.request_names]
    share = None
    if "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id"):
        share = device.share_id
        named.append(("share_id", share))
    for field, text in named:
        if len(text) > _MAX_NAME or not text.isprintable():
            raise BadDraAnswer(
                f"the driver gave {text[:80]!r} as {field}, which cannot be a name; the claim is "
                "not prepared"
            )
    return ClaimDevice(
        device.pool_name,
        device.device_name,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
        share,
    )
