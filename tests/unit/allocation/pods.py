"""Pods with resources, for the tests of this room."""

from __future__ import annotations

from typing import Any

from kubeletpy.pods.pod import Pod


def needs(requests: str = "", limits: str = "") -> dict[str, Any]:
    """``cpu=100m memory=64Mi`` as resources."""
    made = {}
    for kind, words in (("requests", requests), ("limits", limits)):
        if words:
            made[kind] = dict(word.split("=") for word in words.split())
    return made


def pod(
    uid: str = "u1",
    *,
    generation: int = 1,
    priority: int | None = None,
    pod_level: dict[str, Any] | None = None,
    init: dict[str, dict[str, Any]] | None = None,
    status: dict[str, Any] | None = None,
    more: dict[str, dict[str, Any]] | None = None,
    **containers: dict[str, Any],
) -> Pod:
    """A pod; each keyword is a container with its resources, ``more`` adds fields by container."""
    spec: dict[str, Any] = {
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
            "status": status or {},
        }
    )
