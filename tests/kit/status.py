"""Pods and runtime records for the status tables."""

from __future__ import annotations

from typing import Any

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.status.generate import StatusInputs

NOW = 1_800_000_000.0
SECOND = 1_000_000_000


def pod(
    *containers: str | dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod; a container given as a name has only that name and an image."""
    full = [
        {"name": c, "image": "busybox"} if isinstance(c, str) else {"image": "busybox", **c}
        for c in containers or ("a",)
    ]
    body: dict[str, Any] = {"containers": full, **spec}
    if init is not None:
        body["initContainers"] = [{"image": "busybox", **c} for c in init]
    meta = {"name": "p", "namespace": "d", "uid": "u", "generation": 1, **(metadata or {})}
    return Pod({"metadata": meta, "spec": body, "status": status or {}})  # type: ignore[typeddict-item]


def record(
    name: str, state: str = "running", exit_code: int = 0, *, attempt: int = 0, **fields: Any
) -> ContainerStatus:
    """One container record; ids and times grow with the attempt."""
    begun = int(NOW - 100 + attempt) * SECOND
    return ContainerStatus(
        id=fields.pop("id", f"{name}-{attempt}"),
        name=name,
        state=ContainerState(state),
        sandbox_id="s0",
        created_at=begun,
        started_at=begun if state in ("running", "exited") else 0,
        finished_at=begun + SECOND if state == "exited" else 0,
        exit_code=exit_code,
        reason={0: "Completed"}.get(exit_code, "Error") if state == "exited" else "",
        restart_count=attempt,
        image="busybox",
        image_ref="sha256:1",
        **fields,
    )


def runtime(*records: ContainerStatus, sandbox: bool = True, **fields: Any) -> PodRuntimeStatus:
    """A runtime status; records newest first."""
    sandboxes = (SandboxStatus(id="s0", ready=True, ips=("10.0.0.5",)),) if sandbox else ()
    return PodRuntimeStatus(
        uid="u",
        name="p",
        namespace="d",
        sandboxes=sandboxes,
        containers=records,
        ips=("10.0.0.5",) if sandbox else (),
        **fields,
    )


def inputs(of: Pod, has: PodRuntimeStatus, **fields: Any) -> StatusInputs:
    """Inputs with the status in the API as the previous one."""
    fields.setdefault("old", of.status)
    return StatusInputs(
        pod=of,
        runtime=has,
        runtime_name="containerd",
        now=NOW,
        sandbox_usable=has.has_ready_sandbox,
        host_ips=("192.168.0.9",),
        **fields,
    )


def reported(name: str, **state: Any) -> dict[str, Any]:
    """A container status as the API has it: ``shown("a", running={})``."""
    last = state.pop("last", None)
    extra = state.pop("extra", {})
    entry: dict[str, Any] = {"name": name, "state": state, "restartCount": 0, **extra}
    if last is not None:
        entry["lastState"] = {"terminated": last}
    return entry
