"""Defaults of the kinds of resource.k8s.io. Pure.

The API sets when a taint was added: ``kinds.devices``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


def claim(obj: JSON) -> JSON:
    """A claim: one device of each request."""
    return {**obj, "spec": _claim_spec(obj.get("spec") or {}), "status": obj.get("status") or {}}


def template(obj: JSON) -> JSON:
    """A template: the same as its claims."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "spec": _claim_spec(spec.get("spec") or {})}}


def device_class(obj: JSON) -> JSON:
    """A class: without a spec, it selects every device."""
    return {**obj, "spec": obj.get("spec") or {}}


def _claim_spec(spec: JSON) -> JSON:
    devices = spec.get("devices") or {}
    if devices.get("requests"):
        devices = {**devices, "requests": [_request(each) for each in devices["requests"]]}
    return {**spec, "devices": devices}


def _request(request: JSON) -> JSON:
    found = dict(request)
    if found.get("exactly") is not None:
        found["exactly"] = _wanted(found["exactly"])
    if found.get("firstAvailable"):
        found["firstAvailable"] = [_wanted(each) for each in found["firstAvailable"]]
    return found


def _wanted(request: JSON) -> JSON:
    found = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if found["allocationMode"] == "ExactCount":
        found["count"] = request.get("count") or 1
    return found
