"""Decides what to do about init containers and sidecars in a sandbox that stays.

Walks the list from its end, because records of early init containers may be absent: the last one
with a record shows how far initialisation has come. Must never start a later init container while
an earlier one has not done its part.

Source: docs/reference/behaviour.md, c4; KEP-753.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.runtime_manager.plan.actions import KillContainer, StartContainer, kill_decision
from kubeletpy.runtime_manager.plan.resize import ContainerResize, InEffect, judge_container


class InitPlan(Struct, frozen=True):
    """How far initialisation has come, and what it needs."""

    initialized: bool
    """Regular containers may start."""
    starts: tuple[StartContainer, ...] = ()
    """In the order of the spec."""
    kills: tuple[KillContainer, ...] = ()
    kill_pod_reason: str = ""
    """Initialisation has failed for good: the pod is to be stopped."""
    notes: tuple[runtime_status.Decision, ...] = ()
    """Kills, and what is being waited for."""
    resizes: tuple[ContainerResize, ...] = ()


class _InitWalk(Struct):
    """The findings of one walk over the list so far."""

    pod: Pod
    status: runtime_status.PodRuntimeStatus
    probes: runtime_status.ProbeResults
    sandbox: str
    """The newest sandbox's id."""
    initialized: bool
    seen: bool
    """A later init container has a record, or regular containers have been created."""
    in_effect: InEffect | None = None
    starts: dict[int, str] = field(default_factory=dict)
    """Index -> reason."""
    again: set[int] = field(default_factory=set)
    """Indexes in ``starts`` of those that have run before, and ended by themselves."""
    kills: list[KillContainer] = field(default_factory=list)
    notes: list[runtime_status.Decision] = field(default_factory=list)
    resizes: list[ContainerResize] = field(default_factory=list)
    kill_pod_reason: str = ""

    def start_next(self, index: int, reason: str) -> None:
        """Initialisation is past ``index``: end it, or go on with the next one."""
        if index == len(self.pod.init_containers) - 1:
            self.initialized = True
        elif not self.seen:
            self.starts[index + 1] = reason

    def kill_and_start(
        self,
        index: int,
        record: runtime_status.ContainerStatus,
        message: str,
        reason: runtime_status.KillReason,
    ) -> None:
        container = self.pod.init_containers[index]
        self.kills.append(
            KillContainer(
                record.id, container["name"], ContainerKind.INIT, container, message, reason
            )
        )
        self.starts[index] = message

    def resize(self, index: int, record: runtime_status.ContainerStatus) -> None:
        """Give a running container the resources it should have."""
        container = self.pod.init_containers[index]
        if self.in_effect is None:
            return
        resize = judge_container(self.pod, container, ContainerKind.INIT, record, self.in_effect)
        if resize is None:
            return
        self.resizes.append(resize)
        self.notes += resize.decisions
        if resize.restart:
            message = f"Container {container['name']} resize requires restart"
            self.kill_and_start(index, record, message, runtime_status.KillReason.RESIZE)

    def wait(self, container: api.Container, what: str) -> None:
        self.notes.append(
            runtime_status.Decision(f"wait for init container {container['name']}", what)
        )


def plan_init_containers(
    pod: Pod,
    status: runtime_status.PodRuntimeStatus,
    probes: runtime_status.ProbeResults,
    in_effect: InEffect | None = None,
) -> InitPlan:
    """Decide about all init containers of a pod whose sandbox is fine."""
    containers = pod.init_containers
    if not containers:
        return InitPlan(initialized=True)
    sandbox = status.sandboxes[0].id
    regular_created = any(
        record is not None
        and record.state
        in (runtime_status.ContainerState.CREATED, runtime_status.ContainerState.RUNNING)
        and record.sandbox_id in ("", sandbox)
        for container in pod.containers
        for record in (status.newest(container["name"]),)
    )
    walk = _InitWalk(
        pod,
        status,
        probes,
        sandbox,
        initialized=regular_created,
        seen=regular_created,
        in_effect=in_effect,
    )
    for index in range(len(containers) - 1, -1, -1):
        _judge(walk, index)
        if walk.kill_pod_reason:
            return InitPlan(
                initialized=False, kill_pod_reason=walk.kill_pod_reason, notes=tuple(walk.notes)
            )
    if not walk.seen:
        walk.starts[0] = "it is the first, and none has run yet"
    return InitPlan(
        initialized=walk.initialized,
        starts=tuple(
            StartContainer(
                ContainerKind.INIT, containers[index], walk.starts[index], index in walk.again
            )
            for index in sorted(walk.starts)
        ),
        kills=tuple(walk.kills),
        notes=(*map(kill_decision, walk.kills), *walk.notes),
        resizes=tuple(walk.resizes),
    )


def _judge(walk: _InitWalk, index: int) -> None:
    container = walk.pod.init_containers[index]
    record = walk.status.newest(container["name"])
    sidecar = is_sidecar(container)
    if record is not None and not record.running and record.sandbox_id not in ("", walk.sandbox):
        record = None  # kept for the status to show: initialisation starts over in each sandbox
    if record is None:
        if walk.seen and sidecar:
            walk.starts[index] = "it should keep running and has no container"
        return
    if not sidecar and walk.seen:
        return  # it has done its part; only sidecars are kept running
    match record.state:
        case runtime_status.ContainerState.CREATED:
            walk.starts[index] = "its container was created but never started"
        case runtime_status.ContainerState.RUNNING if sidecar:
            _judge_running_sidecar(walk, index, record)
        case runtime_status.ContainerState.RUNNING:
            walk.wait(container, "it is running")
            walk.resize(index, record)
        case runtime_status.ContainerState.EXITED if sidecar:
            walk.starts[index] = f"it should keep running and exited with {record.exit_code}"
            walk.again.add(index)
        case runtime_status.ContainerState.EXITED:
            _judge_exited(walk, index, record)
        case _:
            _judge_unknown(walk, index, record)
    walk.seen = True


def _judge_running_sidecar(
    walk: _InitWalk, index: int, record: runtime_status.ContainerStatus
) -> None:
    container = walk.pod.init_containers[index]
    name = container["name"]
    if container.get("startupProbe"):
        startup = walk.probes.startup.get(record.id)
        if startup is runtime_status.ProbeOutcome.FAILURE:
            message = f"Init container {name} failed startup probe"
            walk.kill_and_start(index, record, message, runtime_status.KillReason.STARTUP_PROBE)
            return
        if startup is not runtime_status.ProbeOutcome.SUCCESS:
            walk.wait(container, "its startup probe has not succeeded yet")
            return
    walk.start_next(index, f"sidecar {name} before it has started")
    if record.hash != container_hash(container):
        message = f"Init container {name} definition changed"
        walk.kill_and_start(index, record, message, runtime_status.KillReason.DEFINITION_CHANGED)
    elif (
        container.get("livenessProbe")
        and walk.probes.liveness.get(record.id) is runtime_status.ProbeOutcome.FAILURE
    ):
        message = f"Init container {name} failed liveness probe"
        walk.kill_and_start(index, record, message, runtime_status.KillReason.LIVENESS_PROBE)
    else:
        walk.resize(index, record)


def _judge_exited(walk: _InitWalk, index: int, record: runtime_status.ContainerStatus) -> None:
    container = walk.pod.init_containers[index]
    name = container["name"]
    if not runtime_status.init_container_failed(record):
        walk.start_next(index, f"init container {name} before it has completed")
        return
    again, why = runtime_status.should_container_be_restarted(walk.pod, container, walk.status)
    if again:
        walk.starts[index] = why
        walk.again.add(index)
    else:
        walk.kill_pod_reason = f"init container {name} has failed for good: {why}"


def _judge_unknown(walk: _InitWalk, index: int, record: runtime_status.ContainerStatus) -> None:
    container = walk.pod.init_containers[index]
    if runtime_status.restart_allowed(walk.pod, container):
        message = f'Init container is in "{record.state}" state, try killing it before restart'
        walk.kill_and_start(index, record, message, runtime_status.KillReason.UNKNOWN_STATE)
    else:
        walk.kill_pod_reason = (
            f"init container {container['name']} is in state {record.state} and may not restart"
        )
