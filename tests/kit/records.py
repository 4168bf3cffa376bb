"""Short forms of pods and runtime records, for tables of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.runtime_manager.plan.actions import PodActions

IMAGE = "registry.example/app:1"


def container(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, **fields}


def sidecar(name: str, **fields: Any) -> dict[str, Any]:
    return container(name, restartPolicy="Always", **fields)


def make_pod(
    *containers: dict[str, Any] | str,
    init: Sequence[dict[str, Any] | str] = (),
    ephemeral: tuple[str, ...] = (),
    policy: str = "Always",
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    def full(item: dict[str, Any] | str) -> dict[str, Any]:
        return container(item) if isinstance(item, str) else item

    whole: Any = {
        "metadata": {"name": "web", "namespace": "prod", "uid": "uid-1", **(metadata or {})},
        "spec": {
            "restartPolicy": policy,
            "enableServiceLinks": True,
            "containers": [full(item) for item in containers or ("app",)],
            "initContainers": [full(item) for item in init],
            "ephemeralContainers": [container(name) for name in ephemeral],
            **spec,
        },
    }
    return Pod(whole)


def record(
    name: str,
    state: ContainerState,
    *,
    code: int = 0,
    reason: str = "",
    suffix: str = "",
    image: str = IMAGE,
    finished_at: int = 0,
) -> ContainerStatus:
    return ContainerStatus(
        id=f"id-{name}{suffix}",
        name=name,
        state=state,
        sandbox_id="sandbox-1",
        exit_code=code,
        reason=reason,
        hash=container_hash({"name": name, "image": image}),
        finished_at=finished_at,
    )


def running(name: str, **more: Any) -> ContainerStatus:
    return record(name, ContainerState.RUNNING, **more)


def created(name: str) -> ContainerStatus:
    return record(name, ContainerState.CREATED)


def unknown(name: str) -> ContainerStatus:
    return record(name, ContainerState.UNKNOWN)


def exited(name: str, code: int = 0, **more: Any) -> ContainerStatus:
    return record(name, ContainerState.EXITED, code=code, **more)


READY = SandboxStatus("sandbox-1", ready=True, ips=("10.0.0.2",))
DEAD = SandboxStatus("sandbox-1", ready=False)


def has(
    *records: ContainerStatus, sandboxes: tuple[SandboxStatus, ...] = (READY,)
) -> PodRuntimeStatus:
    return PodRuntimeStatus("uid-1", "web", "prod", sandboxes=sandboxes, containers=records)


def summary(actions: PodActions) -> dict[str, Any]:
    """The plan without its reasons; only what is to be done."""
    every = {
        "kill_pod": actions.kill_pod,
        "create": actions.attempt if actions.create_sandbox else None,
        "kill": [kill.name for kill in actions.containers_to_kill],
        "reset": [reset.id for reset in actions.containers_to_reset],
        "ephemeral": [start.name for start in actions.ephemeral_to_start],
        "init": [start.name for start in actions.init_to_start],
        "regular": [start.name for start in actions.regular_to_start],
    }
    return {
        key: value for key, value in every.items() if value is not False and value not in (None, [])
    }
