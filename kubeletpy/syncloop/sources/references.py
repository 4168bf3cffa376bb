"""Which API objects a static pod may not reference (docs/reference/behaviour.md, s).

Pure. A static pod starts without an API, so nothing that only the API has may be needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_VOLUMES = {
    "configMap": "configmaps",
    "secret": "secrets",
    "csi": "CSI volumes",
    "glusterfs": "endpoints",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "ephemeral volumes",
    "azureFile": "secrets",
}
_SECRET_REF_VOLUMES = ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos", "cinder")


def forbidden_reference(spec: Any) -> str:
    """The kind of object that a static pod's spec references but may not; empty: none."""
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "serviceaccounts"
    if spec.get("imagePullSecrets"):
        return "secrets"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for container in _containers(spec):
        if what := _in_environment(container):
            return what
    for volume in _mappings(spec.get("volumes")):
        if what := _in_volume(volume):
            return what
    return ""


def _in_environment(container: Mapping[str, Any]) -> str:
    for source in _mappings(container.get("envFrom")):
        if source.get("secretRef"):
            return "secrets"
        if source.get("configMapRef"):
            return "configmaps"
    for variable in _mappings(container.get("env")):
        value_from = variable.get("valueFrom")
        if isinstance(value_from, Mapping):
            if value_from.get("secretKeyRef"):
                return "secrets"
            if value_from.get("configMapKeyRef"):
                return "configmaps"
    return ""


def _in_volume(volume: Mapping[str, Any]) -> str:
    for field, what in _VOLUMES.items():
        if field in volume:
            return what
    for field in _SECRET_REF_VOLUMES:
        source = volume.get(field)
        if isinstance(source, Mapping) and source.get("secretRef"):
            return "secrets"
    projected = volume.get("projected")
    if isinstance(projected, Mapping):
        for source in _mappings(projected.get("sources")):
            others = [field for field in source if field != "downwardAPI"]
            if others:
                return f"{others[0]} projected volume sources"
    return ""


def _containers(spec: Any) -> Iterator[Mapping[str, Any]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from _mappings(spec.get(field))


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))
