"""Rules of the API for claims, volumes and drivers beyond storing them. Pure.

Finalizers that keep what is in use, the default class, what may be expanded, and warnings.
Source: the admission plugins StorageObjectInUseProtection, DefaultStorageClass and
PersistentVolumeClaimResize of an API server.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import forbidden
from kubeletpy_up.kinds.meta import with_metadata
from kubeletpy_up.schema import formats

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLASSES = "storageclasses.storage.k8s.io"
PROTECTION = {CLAIMS: "kubernetes.io/pvc-protection", VOLUMES: "kubernetes.io/pv-protection"}
"""The finalizer of each, which a controller removes once nobody uses the object."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_NOT_RESIZED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
    "must support resize"
)


def protected(plural: str, obj: JSON) -> JSON:
    """A new claim or volume with the finalizer that keeps it while it is used."""
    finalizers = obj["metadata"].get("finalizers") or []
    desired = PROTECTION[plural]
    return obj if desired in finalizers else with_metadata(obj, finalizers=[*finalizers, desired])


def is_default(storage_class: JSON) -> bool:
    """Whether claims without a class get this one."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return "true" in (annotations.get(DEFAULT_CLASS), annotations.get(BETA_DEFAULT_CLASS))


def class_of(obj: JSON) -> str | None:
    """The class that a claim or volume names; "" for explicitly none, None if unset."""
    annotated = (obj["metadata"].get("annotations") or {}).get(BETA_CLASS)
    if annotated is not None:
        return str(annotated)
    named = (obj.get("spec") or {}).get("storageClassName")
    return None if named is None else str(named)


def with_default_class(claim: JSON, classes: Iterable[JSON]) -> JSON:
    """A claim that names no class, with the newest default class if there is one."""
    if class_of(claim) is not None:
        return claim
    found = sorted(
        (c for c in classes if is_default(c)),
        key=lambda c: (c["metadata"].get("creationTimestamp") or "", c["metadata"]["name"]),
    )
    if not found:
        return claim
    name = found[-1]["metadata"]["name"]
    return {**claim, "spec": {**claim["spec"], "storageClassName": name}}


def check_expansion(new: JSON, old: JSON, storage_class: JSON | None) -> None:
    """Refuse to expand what can't be expanded.

    Raises:
        ApiError: 403.
    """
    if size(new) <= size(old):
        return
    name = new["metadata"]["name"]
    if (old.get("status") or {}).get("phase") != "Bound":
        raise forbidden(CLAIMS, name, "Only bound persistent volume claims can be expanded")
    if storage_class is None or not storage_class.get("allowVolumeExpansion"):
        raise forbidden(CLAIMS, name, _NOT_RESIZED)


def size(claim: JSON) -> int:
    """The requested size of a claim, in bytes."""
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return in_bytes(requests.get("storage"))


def in_bytes(amount: object) -> int:
    """A quantity in whole bytes, rounded up; 0 if there is none."""
    return -(-formats.milli(str(amount)) // 1000) if amount is not None else 0


def volume_status(new: JSON, old: JSON, now: float) -> JSON:
    """A written volume status with the time of its last change of phase."""
    before, after = old.get("status") or {}, new.get("status") or {}
    moment, known = after.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
    if after.get("phase") == before.get("phase"):
        moment = moment or known
    elif moment in (None, known):
        moment = format_time(now)
    return {**after, "lastPhaseTransitionTime": moment} if moment else after


def warnings(plural: str, obj: JSON) -> list[str]:
    """The warnings to the client about a new object that is accepted nevertheless."""
    if plural == CLAIMS:
        return _claim_warnings(obj)
    spec = obj.get("spec") or {}
    if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        return [
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        ]
    if plural == VOLUMES and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        return [
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        ]
    return []


def _claim_warnings(obj: JSON) -> list[str]:
    found = []
    if BETA_CLASS in ((obj.get("metadata") or {}).get("annotations") or {}):
        found.append(
            f"metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use "
            '"storageClassName" attribute instead'
        )
    resources = (obj.get("spec") or {}).get("resources") or {}
    for kind in ("limits", "requests"):
        amount = (resources.get(kind) or {}).get("storage")
        if amount is not None and formats.milli(str(amount)) % 1000:
            reported = formats.canonical(str(amount))
            found.append(
                f"spec.resources.{kind}[storage]: fractional byte value "
                f'"{reported}" is invalid, must be an integer'
            )
    return found
