"""Pods with resources, for the tests of this package."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod


def needs(requests: str = "", limits: str = "") -> api.ResourceRequirements:
    """``cpu=100m memory=64Mi`` as resources."""
    made: api.ResourceRequirements = {}
    if requests:
        made["requests"] = _amounts(requests)
    if limits:
        made["limits"] = _amounts(limits)
    return made


def _amounts(parts: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in parts.split())


def pod(
    uid: str = "u1",
    *,
    generation: int = 1,
    priority: int | None = None,
    pod_level: api.ResourceRequirements | None = None,
    init: dict[str, api.ResourceRequirements] | None = None,
    status: Any = None,
    more: dict[str, dict[str, Any]] | None = None,
    **containers: api.ResourceRequirements,
) -> Pod:
    """A pod; each keyword is a container with its resources, ``more`` adds fields by container."""
    spec: Any = {
        "containers": [
            {"name": name, "resources": resources, **(more or {}).get(name, {})}
            for name, resources in containers.items()
        ]
    }
    if init:
        spec["initContainers"] = [
            {"name": name, "resources": resources} for name, resources in init.items()
        ]
    if priority is not None:
        spec["priority"] = priority
    if pod_level is not None:
        spec["resources"] = pod_level
    return Pod(
        {
            "metadata": {
                "name": f"pod-{uid}",
                "namespace": "default",
                "uid": uid,
                "generation": generation,
            },
            "spec": spec,
            "status": {} if status is None else status,
        }
    )
