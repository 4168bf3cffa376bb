"""A pod with a patch, or with a manifest laid over it. Pure.

Which lists of a pod are keyed, and by what, is the API's schema (OpenAPI of Kubernetes 1.37,
``x-kubernetes-patch-merge-key``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from kubeletpy.base.api.json_patch import MalformedPatch, json_patch, merge_patch, strategic_merge
from kubeletpy.base.api.types import JSON


def _keyed(key: str, fields: JSON | None = None, *, retain: bool = False) -> JSON:
    strategy = "merge,retainKeys" if retain else "merge"
    items = {"properties": fields or {}}
    return {
        "x-kubernetes-patch-merge-key": key,
        "x-kubernetes-patch-strategy": strategy,
        "items": items,
    }


_CONTAINERS = _keyed(
    "name",
    {
        "env": _keyed("name"),
        "ports": _keyed("containerPort"),
        "volumeDevices": _keyed("devicePath"),
        "volumeMounts": _keyed("mountPath"),
    },
)
POD_SCHEMA: JSON = {
    "properties": {
        "spec": {
            "properties": {
                "containers": _CONTAINERS,
                "ephemeralContainers": _CONTAINERS,
                "evictionResponders": _keyed("name"),
                "initContainers": _CONTAINERS,
                "hostAliases": _keyed("ip"),
                "imagePullSecrets": _keyed("name"),
                "resourceClaims": _keyed("name", retain=True),
                "schedulingGates": _keyed("name"),
                "topologySpreadConstraints": _keyed("topologyKey"),
                "volumes": _keyed("name", retain=True),
            }
        }
    }
}


class KubectlPatchType(StrEnum):
    """The kinds of patch of ``kubectl patch``, by its names."""

    STRATEGIC = "strategic"
    MERGE = "merge"
    JSON = "json"


def patched(pod: JSON, patch: Any, kind: KubectlPatchType = KubectlPatchType.STRATEGIC) -> JSON:
    """A pod's object with a patch of its spec; what a patch does besides is left out.

    Raises MalformedPatch.
    """
    if kind is KubectlPatchType.JSON:
        return {**pod, "spec": json_patch(pod, patch).get("spec")}
    wanted = patch.get("spec", {}) if isinstance(patch, dict) else None
    if not isinstance(wanted, dict):
        raise MalformedPatch("the patch is no object")
    if kind is KubectlPatchType.MERGE:
        return {**pod, "spec": merge_patch(pod.get("spec"), wanted)}
    return strategic_merge(POD_SCHEMA, pod, {"spec": wanted})
