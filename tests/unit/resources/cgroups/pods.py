"""Pods and containers for the tables of these tests."""

from __future__ import annotations

from typing import Any, cast

from kubeletpy.pods.pod import Pod


def container(
    cpu: str = "", memory: str = "", *, limit_cpu: str = "", limit_memory: str = "", **more: Any
) -> dict[str, Any]:
    """A container with the given requests and limits; empty: none."""
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    limits = {k: v for k, v in (("cpu", limit_cpu), ("memory", limit_memory)) if v}
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


def fixed(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    """A container whose limits are its requests."""
    return container(cpu, memory, limit_cpu=cpu, limit_memory=memory, **more)


def pod(*containers: dict[str, Any], uid: str = "u-1", **spec: Any) -> Pod:
    """A pod with the given containers."""
    metadata: dict[str, Any] = {"name": "p", "namespace": "default", "uid": uid}
    for name in ("labels", "annotations", "creationTimestamp", "deletionTimestamp"):
        if name in spec:
            metadata[name] = spec.pop(name)
    status = spec.pop("status", {})
    whole = {"containers": list(containers) or [container()], **spec}
    return Pod(cast(Any, {"metadata": metadata, "spec": whole, "status": status}))
