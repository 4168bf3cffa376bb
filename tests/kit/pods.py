"""Small pods and statuses for tests of workers and sync loop."""

from __future__ import annotations

from typing import Any

from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_SOURCE, Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)


def pod_object(
    name: str = "web",
    uid: str = "",
    *,
    deleting: int | None = None,
    phase: str = "",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Any:
    """An API object; ``deleting``: deletionGracePeriodSeconds of a pod being deleted."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if labels:
        metadata["labels"] = labels
    if deleting is not None:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        metadata["deletionGracePeriodSeconds"] = deleting
    obj: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "img"}], **spec},
    }
    if phase:
        obj["status"] = {"phase": phase}
    return obj


def make_pod(name: str = "web", uid: str = "", **kwargs: Any) -> Pod:
    """The same pod as a view."""
    return Pod(pod_object(name, uid, **kwargs))


def make_static(name: str = "static", uid: str = "", **kwargs: Any) -> Pod:
    """A static pod."""
    obj = pod_object(name, uid, **kwargs)
    uid = obj["metadata"]["uid"]
    obj["metadata"]["annotations"] = {CONFIG_SOURCE: "file", CONFIG_HASH: uid}
    return Pod(obj)


def runtime_status(
    uid: str = "uid-web",
    state: ContainerState | None = ContainerState.RUNNING,
    *,
    at: int = 1,
    ready: bool = True,
    name: str = "web",
    exit_code: int = 0,
    container_id: str = "c1",
) -> PodRuntimeStatus:
    """A pod with one sandbox and at most one container."""
    containers: tuple[ContainerStatus, ...] = ()
    if state is not None:
        containers = (
            ContainerStatus(
                id=container_id, name="main", state=state, sandbox_id="s1", exit_code=exit_code
            ),
        )
    return PodRuntimeStatus(
        uid,
        name,
        "default",
        sandboxes=(SandboxStatus("s1", ready, ips=("10.0.0.9",) if ready else ()),),
        containers=containers,
        ips=("10.0.0.9",) if ready else (),
        observed_at=at,
    )
