"""The cells of ``kubectl get`` for claims, volumes and the kinds of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubeletpy_up.printers.cells import age_of, name_of

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_UNSET = "<unset>"
_DEFAULTS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _meta(obj: JSON) -> JSON:
    found: JSON = obj.get("metadata") or {}
    return found


def _phase(obj: JSON) -> str:
    if _meta(obj).get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _class(obj: JSON) -> str:
    annotated = (_meta(obj).get("annotations") or {}).get(_BETA_CLASS)
    return str(annotated or (obj.get("spec") or {}).get("storageClassName") or "")


def access_modes(modes: list[str] | None) -> str:
    """``RWO,ROX``."""
    return ",".join(text for mode, text in _SHORT.items() if mode in (modes or ()))


def claim(obj: JSON, now: float) -> list[Any]:
    """The volume that a claim is bound to, and its size."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = spec.get("volumeName", "")
    return [
        name_of(obj),
        _phase(obj),
        bound,
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        access_modes(status.get("accessModes")) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        age_of(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def volume(obj: JSON, now: float) -> list[Any]:
    """Capacity, policy, and the claim it is bound to."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reference = spec.get("claimRef") or {}
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def storage_class(obj: JSON, now: float) -> list[Any]:
    """Provisioner, binding mode and reclaim policy."""
    return [
        name_of(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


def default_class(classes: Iterable[JSON]) -> str:
    """The class that a list marks as the default: the newest, then the first by name; or empty."""
    marked = [
        obj
        for obj in classes
        if any((_meta(obj).get("annotations") or {}).get(key) == "true" for key in _DEFAULTS)
    ]
    marked.sort(key=name_of)
    marked.sort(key=lambda obj: str(_meta(obj).get("creationTimestamp") or ""), reverse=True)
    return name_of(marked[0]) if marked else ""


def csi_driver(obj: JSON, now: float) -> list[Any]:
    """The requirements of a driver, and the audiences of its tokens."""
    spec = obj.get("spec") or {}
    audiences = [request.get("audience") or "" for request in spec.get("tokenRequests") or ()]
    return [
        name_of(obj),
        bool(spec.get("attachRequired", True)),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(audiences) if audiences else _UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, now),
    ]


def csi_node(obj: JSON, now: float) -> list[Any]:
    """DRIVERS counts them."""
    return [name_of(obj), len((obj.get("spec") or {}).get("drivers") or ()), age_of(obj, now)]


def volume_attachment(obj: JSON, now: float) -> list[Any]:
    """The attacher, the volume, the node, and whether the volume is attached."""
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool((obj.get("status") or {}).get("attached")),
        age_of(obj, now),
    ]


def storage_capacity(obj: JSON, now: float) -> list[Any]:
    """The name and the creation timestamp."""
    return [name_of(obj), _meta(obj).get("creationTimestamp")]
