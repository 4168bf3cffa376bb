"""Additions of admission to a new pod: service account volume, pull secrets, QoS class.

Pure: the account and the random suffix are arguments. Nothing here refuses a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.pods.resources import COMPUTE
from kubeletpy_up.schema import quantities

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
_MIRROR = "kubernetes.io/config.mirror"


def with_service_account(pod: JSON, account: JSON | None, suffix: str) -> JSON:
    """Mount the account's token, the cluster's CA and the namespace into every container.

    Args:
        pod: a defaulted pod; a mirror pod is returned unchanged.
        account: the ServiceAccount object, None if there is none.
        suffix: five random characters for the volume's name.
    """
    if _MIRROR in ((pod.get("metadata") or {}).get("annotations") or {}):
        return pod
    spec = dict(pod["spec"])
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = (account or {}).get("automountServiceAccountToken", True)
    secrets = (account or {}).get("imagePullSecrets")
    if secrets and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = secrets
    if automount:
        existing = next((v["name"] for v in spec.get("volumes") or () if _is_token_volume(v)), None)
        name = existing or f"kube-api-access-{suffix}"
        mounted = False
        for key in ("initContainers", "containers"):
            if spec.get(key):
                spec[key] = [_mount(container, name) for container in spec[key]]
                mounted = mounted or any(m["name"] == name for c in spec[key] for m in _mounts(c))
        if mounted and existing is None:
            spec["volumes"] = [*(spec.get("volumes") or []), _token_volume(name)]
    return {**pod, "spec": spec}


def _mounts(container: JSON) -> list[JSON]:
    return container.get("volumeMounts") or []


def _mount(container: JSON, volume: str) -> JSON:
    mounts = _mounts(container)
    if any(mount.get("mountPath") == TOKEN_MOUNT_PATH for mount in mounts):
        return container
    mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
    return {**container, "volumeMounts": [*mounts, mount]}


def _is_token_volume(volume: JSON) -> bool:
    return str(volume.get("name", "")).startswith("kube-api-access-") and "projected" in volume


def _token_volume(name: str) -> JSON:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": authority},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def qos_class(spec: JSON) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory of pod or containers."""
    own = spec.get("resources") or {}
    if own.get("requests") or own.get("limits"):
        parts = [own]
    else:
        listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        parts = [container.get("resources") or {} for container in listed]
    guaranteed, anything = True, False
    for part in parts:
        requests, limits = _positive(part.get("requests")), _positive(part.get("limits"))
        anything = anything or bool(requests or limits)
        guaranteed = guaranteed and len(limits) == len(COMPUTE) and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: JSON | None) -> dict[str, int]:
    found = {n: quantities.milli(amounts[n]) for n in COMPUTE if amounts and n in amounts}
    return {name: amount for name, amount in found.items() if amount > 0}
