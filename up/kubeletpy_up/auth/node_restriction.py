"""The rules of NodeRestriction admission as functions: which changes a node may make. Pure.

Source: docs/reference/api-server.md, ae. Each returns the reason of a refusal, or None.
"""

from __future__ import annotations

from kubeletpy.base.api import names
from kubeletpy.base.api.types import JSON
from kubeletpy_up.pki.csr_rules import SIGNERS

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")


def _label_allowed(key: str) -> bool:
    domain = key.rpartition("/")[0]
    if not any(domain == d or domain.endswith("." + d) for d in _KUBERNETES_DOMAINS):
        return True
    if key in names.OWN:
        return True
    return any(domain == p or domain.endswith("." + p) for p in _OWN_PREFIXES)


def _changed(new: JSON, old: JSON | None, key: str) -> set[str]:
    after: JSON = new["metadata"].get(key) or {}
    before: JSON = (old["metadata"].get(key) or {}) if old else {}
    return {k for k in after.keys() | before.keys() if after.get(k) != before.get(k)}


def check_node(node_name: str, new: JSON, old: JSON | None) -> str | None:
    """Creating or changing a Node object (main path or status)."""
    if new["metadata"]["name"] != node_name:
        return f'node "{node_name}" is not allowed to modify node "{new["metadata"]["name"]}"'
    if new["metadata"].get("ownerReferences") != (
        old["metadata"].get("ownerReferences") if old else None
    ):
        return f'node "{node_name}" is not allowed to modify ownerReferences'
    forbidden = sorted(key for key in _changed(new, old, "labels") if not _label_allowed(key))
    if forbidden:
        return (
            f"is not allowed to modify labels: {', '.join(forbidden)}"
            if old
            else f'node "{node_name}" is not allowed to set the following labels: '
            + ", ".join(forbidden)
        )
    before = old and (old.get("spec") or {}).get("configSource")
    source = (new.get("spec") or {}).get("configSource")
    if source and source != before:
        what = "configSource to a new non-nil configSource"
        return f'node "{node_name}" is not allowed to update {what}'
    if old is not None:
        after = (new.get("spec") or {}).get("taints") or []
        if after != ((old.get("spec") or {}).get("taints") or []):
            return f'node "{node_name}" is not allowed to modify taints'
    return None


def check_certificate_request(node_name: str, request: JSON, subject: str | None) -> str | None:
    """Creating a CertificateSigningRequest: a node may only request its own certificate.

    This applies to the nodes' signers only; other requests may be for anybody.

    Args:
        subject: the common name in the request; None when it can't be read.
    """
    if (request.get("spec") or {}).get("signerName") not in SIGNERS:
        return None
    if subject is None:
        return "unable to parse csr"
    if subject != f"system:node:{node_name}":
        return f"can only create a node CSR with CN=system:node:{node_name}"
    return None


_CLAIMED = {
    "resourceClaimStatuses": "resource claim statues",
    "extendedResourceClaimStatus": "extended resource claim status",
    "nodeAllocatableResourceClaimStatuses": "node allocatable resource claim statuses",
}
"""Fields of a pod's status that report on its claims; a node must not write them."""


def check_pod_status(node_name: str, new: JSON, old: JSON) -> str | None:
    """Changing a pod's status."""
    if (old.get("spec") or {}).get("nodeName") != node_name:
        return (
            f'node "{node_name}" can only update pod status for pods with spec.nodeName '
            "set to itself"
        )
    if _changed(new, old, "labels"):
        return f'node "{node_name}" cannot update labels through pod status'
    after, before = new.get("status") or {}, old.get("status") or {}
    for key, reported in _CLAIMED.items():
        if (after.get(key) or None) != (before.get(key) or None):
            return f'node "{node_name}" cannot update {reported}'
    if new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
        return f'node "{node_name}" cannot update ownerReferences through pod status'
    return None


_OF_NODES = frozenset({"capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"})
"""Status fields of a claim that a node may write: the progress of an expansion."""


def check_claim_status(node_name: str, new: JSON, old: JSON) -> str | None:
    """Changing a claim's status."""
    if _not_of_nodes(new) == _not_of_nodes(old):
        return None
    return (
        f'node "{node_name}" is not allowed to update fields other than status.quantity and '
        "status.conditions"
    )


def _not_of_nodes(claim: JSON) -> JSON:
    status = {k: v for k, v in (claim.get("status") or {}).items() if k not in _OF_NODES}
    kept = {
        k: v for k, v in claim["metadata"].items() if k not in ("resourceVersion", "managedFields")
    }
    return {**claim, "metadata": kept, "status": status}


def check_pod_create(node_name: str, pod: JSON, node: JSON | None) -> str | None:
    """Creating a pod: only mirror pods of its own. ``node`` is its Node object."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    if MIRROR_ANNOTATION not in (meta.get("annotations") or {}):
        return (
            f'pod does not have "{MIRROR_ANNOTATION}" annotation, node "{node_name}" can only '
            "create mirror pods"
        )
    if spec.get("nodeName") != node_name:
        return f'node "{node_name}" can only create pods with spec.nodeName set to itself'
    owners = meta.get("ownerReferences") or []
    owner = owners[0] if len(owners) == 1 else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node_name):
        return f'node "{node_name}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        return (
            f'node "{node_name}" can only create pods with a controller owner reference '
            "set to itself"
        )
    if owner.get("blockOwnerDeletion"):
        return f'node "{node_name}" must not set blockOwnerDeletion on an owner reference'
    if node is None or owner.get("uid") != node["metadata"]["uid"]:
        found = node["metadata"]["uid"] if node else ""
        return f"node {node_name} UID mismatch: expected {owner.get('uid')} got {found}"
    referenced = _references(spec)
    if referenced:
        if referenced in ("service accounts", "secrets"):
            return f"a mirror pod may not reference {referenced}"
        return f'node "{node_name}" can not create pods that reference {referenced}'
    return None


def _references(spec: JSON) -> str:
    if spec.get("serviceAccountName"):
        return "service accounts"
    if secret_names(spec):
        return "secrets"
    if config_map_names(spec):
        return "configmaps"
    if any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ()):
        return "persistentvolumeclaims"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return ""


def _containers(spec: JSON) -> list[JSON]:
    return [
        container
        for key in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(key) or ()
    ]


def _env_references(spec: JSON, from_key: str, value_key: str) -> set[str]:
    found: set[str] = set()
    for container in _containers(spec):
        for source in container.get("envFrom") or ():
            found.add((source.get(from_key) or {}).get("name", ""))
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get(value_key) or {}
            found.add(reference.get("name", ""))
    return found


_SECRET_VOLUMES = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")


def secret_names(spec: JSON) -> set[str]:
    """The names of all secrets that a pod spec refers to."""
    found = _env_references(spec, "secretRef", "secretKeyRef")
    found.update(reference.get("name", "") for reference in spec.get("imagePullSecrets") or ())
    for volume in spec.get("volumes") or ():
        found.add((volume.get("secret") or {}).get("secretName", ""))
        found.add((volume.get("azureFile") or {}).get("secretName", ""))
        csi = (volume.get("csi") or {}).get("nodePublishSecretRef") or {}
        found.add(csi.get("name", ""))
        for kind in _SECRET_VOLUMES:
            found.add(((volume.get(kind) or {}).get("secretRef") or {}).get("name", ""))
        for source in (volume.get("projected") or {}).get("sources") or ():
            found.add((source.get("secret") or {}).get("name", ""))
    return found - {""}


def config_map_names(spec: JSON) -> set[str]:
    """The names of all configMaps that a pod spec refers to."""
    found = _env_references(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        found.add((volume.get("configMap") or {}).get("name", ""))
        for source in (volume.get("projected") or {}).get("sources") or ():
            found.add((source.get("configMap") or {}).get("name", ""))
    return found - {""}


_VOLUME_SECRETS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


def volume_secrets(volume: JSON) -> set[tuple[str, str]]:
    """The namespaces and names of the secrets that a node needs for a PersistentVolume."""
    spec = volume.get("spec") or {}
    claim_namespace = (spec.get("claimRef") or {}).get("namespace") or ""
    found = {_reference((spec.get("csi") or {}).get(key), "") for key in _VOLUME_SECRETS}
    for kind in (*_SECRET_VOLUMES, "azureFile"):
        source = spec.get(kind) or {}
        found.add(_reference(source.get("secretRef"), claim_namespace))
        if source.get("secretName"):
            found.add((source.get("secretNamespace") or claim_namespace, source["secretName"]))
    return {(namespace, name) for namespace, name in found if name}


def _reference(supplied: JSON | None, namespace: str) -> tuple[str, str]:
    supplied = supplied or {}
    return supplied.get("namespace") or namespace, supplied.get("name") or ""


def claim_names(pod: JSON) -> set[str]:
    """The names of all persistent volume claims of a pod, including ephemeral volumes'."""
    found: set[str] = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        found.add((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
        if "ephemeral" in volume:
            found.add(f"{pod['metadata']['name']}-{volume['name']}")
    return found - {""}


def device_claim_names(pod: JSON) -> set[str]:
    """The names of all of a pod's ResourceClaims that have been created."""
    status = pod.get("status") or {}
    made = {each.get("name"): each for each in status.get("resourceClaimStatuses") or ()}
    found = {(status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")}
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        own = made.get(entry.get("name"), {}).get("resourceClaimName")
        found.add(entry.get("resourceClaimName") or own)
    return {name for name in found if name}
