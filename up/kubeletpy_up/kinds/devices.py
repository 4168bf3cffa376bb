"""Rules of the API for device claims, beyond storing them. Pure.

Source: strategies of resource.k8s.io/v1 of an API server.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import Cause, invalid
from kubeletpy_up.resources import ResourceInfo

GROUP = "resource.k8s.io"
CLAIMS = f"resourceclaims.{GROUP}"
TEMPLATES = f"resourceclaimtemplates.{GROUP}"
SLICES = f"resourceslices.{GROUP}"
CLASSES = f"deviceclasses.{GROUP}"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_PARTS = (
    f"Forbidden: admin access to devices requires the `{ADMIN_LABEL}: true` label on the "
    "containing namespace"
)


def claim_status(new: JSON, old: JSON) -> JSON:
    """A written status, without the entries of devices that are no longer allocated."""
    status: JSON = dict(new.get("status") or {})
    had, has = _allocated(old.get("status") or {}), _allocated(status)
    if status.get("devices"):
        kept = [each for each in status["devices"] if _id(each) not in had - has]
        status = {key: value for key, value in status.items() if key != "devices"}
        if kept:
            status["devices"] = kept
    return status


def _allocated(status: JSON) -> set[tuple[str, ...]]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return {_id(each) for each in devices.get("results") or ()}


def _id(device: JSON) -> tuple[str, ...]:
    return tuple(device.get(key) or "" for key in ("driver", "pool", "device", "shareID"))


def check_admin(info: ResourceInfo, obj: JSON, namespace: JSON | None, subresource: str) -> None:
    """Refuse admin access where the namespace does not allow it.

    Raises:
        ApiError: 422.
    """
    labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    if labels.get(ADMIN_LABEL) == "true":
        return
    found = list(_admin_paths(info, obj, subresource))
    if found:
        causes = [Cause("FieldValueForbidden", path, _ADMIN_PARTS) for path in found[:1]]
        raise invalid(info.kind, obj["metadata"].get("name", ""), causes, info.group)


def _admin_paths(info: ResourceInfo, obj: JSON, subresource: str) -> Iterable[str]:
    spec, path = obj.get("spec") or {}, "spec.devices"
    if subresource == "status":
        devices = ((obj.get("status") or {}).get("allocation") or {}).get("devices") or {}
        for index, result in enumerate(devices.get("results") or ()):
            if result.get("adminAccess"):
                yield f"status.allocation.devices.results[{index}].adminAccess"
        return
    if info.key == TEMPLATES:
        spec = spec.get("spec") or {}
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield f"{path}.requests[{index}].adminAccess"
