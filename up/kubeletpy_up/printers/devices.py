"""The cells of ``kubectl get`` for device claims and slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy_up.printers.cells import age_of, name_of

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


def claim(obj: JSON, now: float) -> list[Any]:
    """STATE: pending, allocated, reserved, and whether it is deleted."""
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    states = ["deleted"] if meta.get("deletionTimestamp") else []
    if status.get("allocation"):
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not states:
        states = ["pending"]
    return [name_of(obj), ",".join(states), age_of(obj, now)]


def resource_slice(obj: JSON, now: float) -> list[Any]:
    """NODE, DRIVER and POOL: whose devices, and where."""
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        age_of(obj, now),
    ]
