"""Matching of claims and PersistentVolumes, and the content of both once bound. Pure.

Source: the behaviour of a cluster's volume binder, as tests/contract has recorded it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers.placement import matches_node
from kubeletpy_up.kinds.meta import with_metadata
from kubeletpy_up.kinds.storage import class_of, in_bytes, size
from kubeletpy_up.storage.selectors import labels_match

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAITS_FOR_POD = "WaitForFirstConsumer"


def annotation(obj: JSON, key: str) -> str | None:
    """An annotation, or None."""
    found: str | None = (obj["metadata"].get("annotations") or {}).get(key)
    return found


def annotated(obj: JSON, **changes: str | None) -> JSON:
    """A copy with annotations set; None removes one. Keys are given as ``**{key: value}``."""
    known = obj["metadata"].get("annotations") or {}
    kept = {k: v for k, v in {**known, **changes}.items() if v is not None}
    return with_metadata(obj, annotations=kept or None)


def is_completed(claim: JSON) -> bool:
    """Whether a claim was bound before."""
    return annotation(claim, BIND_COMPLETED) is not None


def volume_name(claim: JSON) -> str:
    """The volume that a claim is, or is to be, bound to."""
    return str((claim.get("spec") or {}).get("volumeName") or "")


def capacity(volume: JSON) -> int:
    """How large a volume is, in bytes."""
    return in_bytes(((volume.get("spec") or {}).get("capacity") or {}).get("storage"))


def reference(volume: JSON) -> JSON | None:
    """The claim that a volume is bound to or reserved for."""
    found: JSON | None = (volume.get("spec") or {}).get("claimRef")
    return found


def belongs_to(volume: JSON, claim: JSON) -> bool:
    """Whether a volume is bound to a claim or reserved for it."""
    found, about = reference(volume), claim["metadata"]
    if found is None:
        return False
    named = (found.get("namespace"), found.get("name")) == (about.get("namespace"), about["name"])
    return named and found.get("uid") in (None, "", about["uid"])


def mismatch(volume: JSON, claim: JSON) -> str:
    """Why a claim can't have the volume that it names; empty if it can."""
    desired, has = claim.get("spec") or {}, volume.get("spec") or {}
    if capacity(volume) < size(claim):
        return "requested PV is too small"
    if (class_of(volume) or "") != (class_of(claim) or ""):
        return "storageClassName does not match"
    if _mode(has) != _mode(desired):
        return "incompatible volumeMode"
    if not set(desired.get("accessModes") or ()) <= set(has.get("accessModes") or ()):
        return "incompatible accessMode"
    return ""


def _mode(spec: JSON) -> str:
    return str(spec.get("volumeMode") or "Filesystem")


def fits_node(volume: JSON, node: JSON) -> bool:
    """Whether a volume is accessible from a node."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return not required or matches_node(required, node)


def find_volume(
    claim: JSON,
    volumes: Iterable[JSON],
    *,
    reserved_only: bool = False,
    node: JSON | None = None,
    taken: Container[str] = (),
) -> JSON | None:
    """The volume for an unbound claim: the one that is reserved for it, else the smallest.

    Args:
        reserved_only: the claim waits for its pod.
        node: from where it must be accessible.
        taken: names of volumes that other claims of the same pod get.
    """
    selector = (claim.get("spec") or {}).get("selector")
    best: JSON | None = None
    for volume in volumes:
        about = volume["metadata"]
        if about["name"] in taken or about.get("deletionTimestamp"):
            continue
        if _mode(volume["spec"]) != _mode(claim["spec"]) or capacity(volume) < size(claim):
            continue
        if node is not None and not fits_node(volume, node):
            continue
        if belongs_to(volume, claim):
            return volume
        if reserved_only or reference(volume) is not None or mismatch(volume, claim):
            continue
        if (volume.get("status") or {}).get("phase") != "Available":
            continue
        if selector is not None and not labels_match(selector, about.get("labels") or {}):
            continue
        if best is None or _order(volume) < _order(best):
            best = volume
    return best


def _order(volume: JSON) -> tuple[int, str]:
    return capacity(volume), volume["metadata"]["name"]


def reference_to(claim: JSON) -> JSON:
    """The reference by which a volume is bound to a claim, or reserved for it."""
    keys = ("namespace", "name", "uid", "resourceVersion")
    about = {key: claim["metadata"][key] for key in keys}
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **about}


def with_claim(volume: JSON, claim: JSON) -> JSON:
    """The volume, bound to a claim."""
    known = reference(volume)
    if known is not None and known.get("uid") == claim["metadata"]["uid"]:
        return volume
    changed = {**volume, "spec": {**volume["spec"], "claimRef": reference_to(claim)}}
    return annotated(changed, **{BOUND_BY_CONTROLLER: "yes"}) if known is None else changed


def without_claim(volume: JSON) -> JSON:
    """The volume without its claim: free, or reserved for the claim its creator named."""
    spec = dict(volume["spec"])
    known = spec.pop("claimRef", None) or {}
    if annotation(volume, BOUND_BY_CONTROLLER) is None:
        spec["claimRef"] = {k: v for k, v in known.items() if k not in ("uid", "resourceVersion")}
        return {**volume, "spec": spec}
    return annotated({**volume, "spec": spec}, **{BOUND_BY_CONTROLLER: None})


def with_volume(claim: JSON, volume: JSON) -> JSON:
    """The claim, bound to a volume."""
    name = volume["metadata"]["name"]
    marks = {BIND_COMPLETED: "yes"}
    if volume_name(claim) != name:
        claim = {**claim, "spec": {**claim["spec"], "volumeName": name}}
        marks[BOUND_BY_CONTROLLER] = "yes"
    return annotated(claim, **marks)


def bound_status(claim: JSON, volume: JSON) -> JSON:
    """The claim with the status of a bound one; its capacity is set only when newly bound."""
    known, spec = claim.get("status") or {}, volume["spec"]
    status = {**known, "phase": "Bound", "accessModes": spec.get("accessModes") or []}
    if known.get("phase") != "Bound" or not known.get("capacity"):
        status["capacity"] = {"storage": (spec.get("capacity") or {}).get("storage", "0")}
    return {**claim, "status": status}


def unbound_status(claim: JSON, phase: str) -> JSON:
    """The claim with the status of an unbound one: Pending or Lost."""
    known = claim.get("status") or {}
    kept = {k: v for k, v in known.items() if k not in ("accessModes", "capacity")}
    return {**claim, "status": {**kept, "phase": phase}}


def waits_for_pod(claim: JSON, storage_class: JSON | None) -> bool:
    """Whether a claim is bound only once a pod needs it, and none does yet."""
    if storage_class is None or storage_class.get("volumeBindingMode") != WAITS_FOR_POD:
        return False
    return annotation(claim, SELECTED_NODE) is None


def with_provisioner(claim: JSON, name: str) -> JSON:
    """The claim with the request that a provisioner create a volume for it."""
    return annotated(claim, **{BETA_PROVISIONER: name, PROVISIONER: name})


def owner_of(claim: JSON) -> JSON | None:
    """The pod that controls a claim, according to its owner references."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "Pod":
            return dict(owner)
    return None
