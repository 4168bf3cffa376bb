"""Volumes that are local directories: which claims can have one, and their objects. Pure.

Each is a directory below one that only root may enter, so that only the pods that mount it can
reach it. Its name is derived from the claim's uid alone.
"""

from __future__ import annotations

import re

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers import claim_matching as matching
from kubeletpy_up.kinds.meta import with_metadata
from kubeletpy_up.kinds.storage import DEFAULT_CLASS, size

PROVISIONER = "kubeletpy/local-directory"
CLASS_NAME = "local"
HOSTNAME = "kubernetes.io/hostname"
_NAME = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def storage_class(*, is_default: bool) -> JSON:
    """The StorageClass of these directories."""
    about = "Directories of this machine, below the state directory; sizes are not enforced."
    annotations = {"kubernetes.io/description": about}
    if is_default:
        annotations[DEFAULT_CLASS] = "true"
    return {
        "metadata": {"name": CLASS_NAME, "annotations": annotations},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": matching.WAITS_FOR_POD,
        "allowVolumeExpansion": True,
    }


def is_name(name: str) -> bool:
    """Whether a directory has a name that a volume could have."""
    return _NAME.fullmatch(name) is not None


def name_for(claim: JSON) -> str:
    """The name of a claim's volume and of its directory."""
    return f"pvc-{claim['metadata']['uid']}"


def problem(claim: JSON, storage_class: JSON, node: JSON | None) -> str:
    """Why a claim can't have a directory; empty if it can.

    Args:
        node: the one that has the directories; None if it does not exist (yet).
    """
    spec = claim.get("spec") or {}
    if node is None:
        return "the node whose directories these are is not registered"
    if not is_name(name_for(claim)):
        return f"{claim['metadata']['uid']} is no uid that a directory can be named after"
    if spec.get("volumeMode") == "Block":
        return "a directory is no block device: volumeMode must be Filesystem"
    if spec.get("selector") is not None:
        return "a claim with a selector is bound to volumes that are there, none is made for it"
    if spec.get("dataSource") is not None or spec.get("dataSourceRef") is not None:
        return "a directory is made empty: data sources are not supported"
    unknown = ", ".join(sorted(storage_class.get("parameters") or {}))
    if unknown:
        return f"StorageClass {storage_class['metadata']['name']}: no such parameters: {unknown}"
    if storage_class.get("mountOptions"):
        name = storage_class["metadata"]["name"]
        return f"StorageClass {name}: mountOptions are not supported for directories"
    if not _allowed(storage_class, node):
        return f"allowedTopologies does not allow node {node['metadata']['name']}"
    return ""


def _allowed(storage_class: JSON, node: JSON) -> bool:
    terms = storage_class.get("allowedTopologies") or []
    labels = node["metadata"].get("labels") or {}
    return not terms or any(
        all(labels.get(e["key"]) in e["values"] for e in term.get("matchLabelExpressions") or ())
        for term in terms
    )


def volume(claim: JSON, storage_class: JSON, node: JSON, path: str) -> JSON:
    """The PersistentVolume of a claim's directory, reserved for it."""
    spec = claim["spec"]
    hostname = (node["metadata"].get("labels") or {}).get(HOSTNAME) or node["metadata"]["name"]
    expression = {"key": HOSTNAME, "operator": "In", "values": [hostname]}
    policy = storage_class.get("reclaimPolicy") or "Delete"
    return {
        "metadata": {
            "name": name_for(claim),
            "annotations": {matching.PROVISIONED_BY: PROVISIONER},
            "finalizers": [PROVISIONER],
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": "Filesystem",
            "local": {"path": path},
            "claimRef": matching.reference_to(claim),
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
        },
    }


def is_ours(found: JSON) -> bool:
    """Whether a volume is one of these directories."""
    return matching.annotation(found, matching.PROVISIONED_BY) == PROVISIONER


def is_to_be_deleted(found: JSON) -> bool:
    """Whether to remove a volume's directory: it was bound, and its claim no longer exists."""
    policy = found["spec"].get("persistentVolumeReclaimPolicy")
    phase = (found.get("status") or {}).get("phase")
    return is_ours(found) and policy == "Delete" and phase == "Released"


def released(found: JSON) -> JSON:
    """A volume without this provisioner's finalizer."""
    finalizers = found["metadata"].get("finalizers") or []
    return with_metadata(found, finalizers=[f for f in finalizers if f != PROVISIONER] or None)


def larger(found: JSON, claim: JSON) -> JSON | None:
    """A bound volume grown to what its claim now requests; None if it is large enough."""
    if not is_ours(found) or not matching.belongs_to(found, claim):
        return None
    if size(claim) <= matching.capacity(found):
        return None
    desired = claim["spec"]["resources"]["requests"]["storage"]
    return {**found, "spec": {**found["spec"], "capacity": {"storage": desired}}}
