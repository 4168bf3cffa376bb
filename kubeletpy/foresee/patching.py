"""A pod with a patch, or with a manifest laid over it. Pure.

Which lists of a pod are keyed, and by what, is the API's schema (OpenAPI of Kubernetes 1.36,
``x-kubernetes-patch-merge-key``).
"""

from __future__ import annotations

from typing import Any

from kubeletpy.api.strategic_merge import strategic_merge
from kubeletpy.api.types import JSON


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


def patched(pod: JSON, patch: JSON) -> JSON:
    """A pod's object with a strategic merge patch of its spec. Raises MalformedPatch."""
    wanted: Any = patch.get("spec") or {}
    return strategic_merge(POD_SCHEMA, pod, {"spec": wanted})


def merged(pod: JSON, patch: JSON) -> JSON:
    """A pod's object with a JSON merge patch (RFC 7396) of its spec."""
    return strategic_merge({}, pod, {"spec": patch.get("spec") or {}})
