"""Computes the plan of a sync from a pod and its state in the runtime: the decision table. Pure.

Must never start what runs, nor start anything in a pod that it kills without making a new sandbox.

Source: docs/reference/behaviour.md, c.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.runtime_manager.names import container_hash
from kubeletpy.runtime_manager.plan.actions import (
    KillContainer,
    PodActions,
    ResetContainer,
    StartContainer,
    kill_decision,
    start_decision,
)
from kubeletpy.runtime_manager.plan.init_containers import plan_init_containers
from kubeletpy.runtime_manager.plan.reported_ends import with_reported_ends
from kubeletpy.runtime_manager.plan.resize import (
    NOTHING,
    ContainerResize,
    InEffect,
    judge_container,
    plan_resize,
)


class ContainerVerdict(Struct, frozen=True):
    """The decision about one regular container."""

    keep: bool = False
    start: StartContainer | None = None
    kill: KillContainer | None = None
    resize: ContainerResize | None = None
    decisions: tuple[runtime_status.Decision, ...] = ()


_KEEP = ContainerVerdict(keep=True)


def judge_regular(
    pod: Pod,
    container: api.Container,
    status: runtime_status.PodRuntimeStatus,
    probes: runtime_status.ProbeResults,
    in_effect: InEffect | None,
) -> ContainerVerdict:
    """Keep, start, kill or resize one regular container in a sandbox that stays.

    Source: docs/reference/behaviour.md, c5.
    """
    record = status.newest(container["name"])
    if record is not None and record.state is runtime_status.ContainerState.RUNNING:
        return _judge_running(pod, container, record, probes, in_effect)
    desired, why = runtime_status.should_container_be_restarted(pod, container, status)
    if not desired:
        return ContainerVerdict(
            decisions=(runtime_status.Decision(f"leave container {container['name']}", why),)
        )
    again = record is not None and record.state is runtime_status.ContainerState.EXITED
    start = StartContainer(ContainerKind.REGULAR, container, why, again)
    if record is None or record.state is not runtime_status.ContainerState.UNKNOWN:
        return ContainerVerdict(start=start, decisions=(start_decision(start),))
    message = f'Container is in "{record.state}" state, try killing it before restart'
    kill = _kill(container, record, message, runtime_status.KillReason.UNKNOWN_STATE)
    return ContainerVerdict(
        start=start, kill=kill, decisions=(kill_decision(kill), start_decision(start))
    )


def _judge_running(
    pod: Pod,
    container: api.Container,
    record: runtime_status.ContainerStatus,
    probes: runtime_status.ProbeResults,
    in_effect: InEffect | None,
) -> ContainerVerdict:
    name, reasons = container["name"], runtime_status.KillReason
    if record.hash != container_hash(container):
        message, reason = f"Container {name} definition changed", reasons.DEFINITION_CHANGED
    elif probes.liveness.get(record.id) is runtime_status.ProbeOutcome.FAILURE:
        message, reason = f"Container {name} failed liveness probe", reasons.LIVENESS_PROBE
    elif probes.startup.get(record.id) is runtime_status.ProbeOutcome.FAILURE:
        message, reason = f"Container {name} failed startup probe", reasons.STARTUP_PROBE
    else:
        return _judge_resources(pod, container, record, in_effect)
    start = None
    if reason is reasons.DEFINITION_CHANGED or runtime_status.restart_allowed(pod, container):
        message += ", will be restarted"
        start = StartContainer(ContainerKind.REGULAR, container, message)
    kill = _kill(container, record, message, reason)
    return ContainerVerdict(start=start, kill=kill, decisions=(kill_decision(kill),))


def _judge_resources(
    pod: Pod,
    container: api.Container,
    record: runtime_status.ContainerStatus,
    in_effect: InEffect | None,
) -> ContainerVerdict:
    if in_effect is None:
        return _KEEP
    resize = judge_container(pod, container, ContainerKind.REGULAR, record, in_effect)
    if resize is None:
        return _KEEP
    if not resize.restart:
        return ContainerVerdict(keep=True, resize=resize, decisions=resize.decisions)
    message = f"Container {container['name']} resize requires restart"
    return ContainerVerdict(
        start=StartContainer(ContainerKind.REGULAR, container, resize.why),
        kill=_kill(container, record, message, runtime_status.KillReason.RESIZE),
        resize=resize,
        decisions=resize.decisions,
    )


def _kill(
    container: api.Container,
    record: runtime_status.ContainerStatus,
    message: str,
    reason: runtime_status.KillReason,
) -> KillContainer:
    return KillContainer(record.id, record.name, ContainerKind.REGULAR, container, message, reason)


class PlanInputs(Struct, frozen=True):
    """Everything that a plan is computed from; see :func:`compute_pod_actions`."""

    pod: Pod
    status: runtime_status.PodRuntimeStatus
    probes: runtime_status.ProbeResults = field(default_factory=runtime_status.ProbeResults)
    all_containers_restarting: bool = False
    in_effect: InEffect | None = None


def compute_pod_actions(
    pod: Pod,
    status: runtime_status.PodRuntimeStatus,
    probes: runtime_status.ProbeResults,
    *,
    all_containers_restarting: bool = False,
    in_effect: InEffect | None = None,
) -> PodActions:
    """Decide what a sync has to do.

    ``in_effect``: what the pod and its containers were last given; None: resources are ignored.
    ``all_containers_restarting``: an exit requested the restart of all containers, and not all of
    their records are removed yet (:func:`kubeletpy.pods.runtime_status.restart_all_active`).
    """
    sandbox = runtime_status.decide_sandbox(pod, status)
    if all_containers_restarting:
        return _restart_all(pod, status, sandbox)
    if sandbox.create:
        return _with_new_sandbox(pod, status, sandbox, in_effect)
    return _with_sandbox(pod, status, probes, sandbox, in_effect)


def _restart_all(
    pod: Pod, status: runtime_status.PodRuntimeStatus, sandbox: runtime_status.SandboxDecision
) -> PodActions:
    """Restart-all: with a new sandbox nothing else happens in this pass; else all records go."""
    if sandbox.create:
        return PodActions(
            kill_pod=True,
            create_sandbox=True,
            sandbox_id=sandbox.sandbox_id,
            attempt=sandbox.attempt,
            kill_pod_reason=sandbox.reason,
            decisions=(
                runtime_status.Decision(
                    f"create sandbox, attempt {sandbox.attempt}", sandbox.reason
                ),
            ),
        )
    others: list[ResetContainer] = []
    sources: list[ResetContainer] = []
    for kind, containers in (
        (ContainerKind.REGULAR, pod.containers),
        (ContainerKind.INIT, pod.init_containers),
    ):
        for container in containers:
            for record in status.containers:
                if record.name == container["name"]:
                    reset = _reset(kind, container, record)
                    (sources if reset.source else others).append(reset)
    resets = (*others, *sources)
    return PodActions(
        kill_pod=False,
        create_sandbox=False,
        sandbox_id=sandbox.sandbox_id,
        attempt=sandbox.attempt,
        containers_to_reset=resets,
        decisions=tuple(
            runtime_status.Decision(
                f"remove container {reset.name} ({reset.id})",
                "all containers are to restart"
                + (", as its exit requested" if reset.source else ""),
            )
            for reset in resets
        ),
    )


def _reset(
    kind: ContainerKind, container: api.Container, record: runtime_status.ContainerStatus
) -> ResetContainer:
    exited = record.state is runtime_status.ContainerState.EXITED
    return ResetContainer(
        id=record.id,
        name=record.name,
        kind=kind,
        container=container,
        kill=not exited,
        source=exited and runtime_status.triggers_restart_all(container, record.exit_code),
    )


def _with_new_sandbox(
    pod: Pod,
    status: runtime_status.PodRuntimeStatus,
    sandbox: runtime_status.SandboxDecision,
    in_effect: InEffect | None,
) -> PodActions:
    """The sandbox must go: kill the pod, and create a new one if anything is left to run."""
    starts, held = _starts_in_new_sandbox(pod, status)
    over = ""
    has_run = any(
        record.state is not runtime_status.ContainerState.CREATED for record in status.containers
    )
    if pod.restart_policy == "Never" and sandbox.attempt != 0 and has_run:
        over = "the pod has run, and its restartPolicy is Never"
    elif not starts:
        over = "no container is left to run"
    if over:
        why = f"{sandbox.reason}, and {over}"
        return PodActions(
            kill_pod=True,
            create_sandbox=False,
            sandbox_id=sandbox.sandbox_id,
            attempt=sandbox.attempt,
            kill_pod_reason=why,
            decisions=(runtime_status.Decision("stop the pod without a new sandbox", why),),
        )
    inits = pod.init_containers
    init_starts: tuple[StartContainer, ...] = ()
    if inits:
        init_starts = (
            StartContainer(ContainerKind.INIT, inits[0], "it is first in a new sandbox"),
        )
        starts, held = (), ()
    resize = NOTHING
    if in_effect is not None:
        resize = plan_resize(pod, (), (*pod.init_containers, *pod.containers), in_effect)
    return PodActions(
        kill_pod=True,
        create_sandbox=True,
        sandbox_id=sandbox.sandbox_id,
        attempt=sandbox.attempt,
        init_to_start=init_starts,
        regular_to_start=starts,
        kill_pod_reason=sandbox.reason,
        resize=resize,
        decisions=(
            runtime_status.Decision(f"create sandbox, attempt {sandbox.attempt}", sandbox.reason),
            *resize.decisions,
            *held,
            *(start_decision(start) for start in (*init_starts, *starts)),
        ),
    )


def _starts_in_new_sandbox(
    pod: Pod, status: runtime_status.PodRuntimeStatus
) -> tuple[tuple[StartContainer, ...], tuple[runtime_status.Decision, ...]]:
    """Regular containers except those that ended well and need not run again."""
    starts = []
    held = []
    for container in pod.containers:
        name = container["name"]
        record = status.newest(name)
        if record is None or record.state is not runtime_status.ContainerState.EXITED:
            starts.append(StartContainer(ContainerKind.REGULAR, container, "the sandbox is new"))
            continue
        again, why = runtime_status.restart_after_exit(
            pod.restart_policy, container, record.exit_code
        )
        policy = container.get("restartPolicy") or pod.restart_policy
        if policy == "OnFailure" and record.exit_code == 0:
            held.append(
                runtime_status.Decision(
                    f"leave container {name}", "it exited with 0 and runs until it does"
                )
            )
        elif not again and not status.sandboxes:  # the runtime has lost all that it had of the pod
            held.append(runtime_status.Decision(f"leave container {name}", why))
        else:
            starts.append(StartContainer(ContainerKind.REGULAR, container, "the sandbox is new"))
    return tuple(starts), tuple(held)


def _with_sandbox(
    pod: Pod,
    status: runtime_status.PodRuntimeStatus,
    probes: runtime_status.ProbeResults,
    sandbox: runtime_status.SandboxDecision,
    in_effect: InEffect | None,
) -> PodActions:
    """The sandbox stays: ephemeral containers, then init containers, then regular ones."""
    ephemeral = tuple(
        StartContainer(ContainerKind.EPHEMERAL, container, "it was added and has never run")
        for container in pod.ephemeral_containers
        if (record := status.newest(container["name"])) is None
        or record.state is runtime_status.ContainerState.CREATED
    )
    init = plan_init_containers(pod, status, probes, in_effect)
    init_starts = init.starts
    kill_reason = init.kill_pod_reason
    verdicts: list[ContainerVerdict] = []
    if init.initialized:
        verdicts = [
            judge_regular(pod, container, status, probes, in_effect) for container in pod.containers
        ]
        if not any(verdict.keep or verdict.start for verdict in verdicts):
            kill_reason = "no container runs and none is to be started"
            init_starts = ()  # a sidecar must not keep a finished pod alive
    regular = tuple(verdict.start for verdict in verdicts if verdict.start is not None)
    kills = (*init.kills, *(verdict.kill for verdict in verdicts if verdict.kill is not None))
    decisions = [start_decision(start) for start in (*ephemeral, *init_starts)]
    decisions += init.notes
    for verdict in verdicts:
        decisions += verdict.decisions
    resize = NOTHING
    if kill_reason:
        decisions.append(runtime_status.Decision("stop the pod", kill_reason))
    elif in_effect is not None:
        resizes = (*init.resizes, *(v.resize for v in verdicts if v.resize is not None))
        starting = [start.container for start in (*init_starts, *regular)]
        resize = plan_resize(pod, resizes, starting, in_effect)
        decisions += resize.decisions
    return PodActions(
        kill_pod=bool(kill_reason),
        create_sandbox=False,
        sandbox_id=sandbox.sandbox_id,
        attempt=sandbox.attempt,
        containers_to_kill=() if kill_reason else kills,
        ephemeral_to_start=() if kill_reason else ephemeral,
        init_to_start=init_starts,
        regular_to_start=regular,
        resize=resize,
        kill_pod_reason=kill_reason,
        decisions=tuple(decisions),
    )


def sync_intent(
    pod: Pod,
    status: runtime_status.PodRuntimeStatus,
    probes: runtime_status.ProbeResults,
    in_effect: InEffect,
) -> runtime_status.SyncIntent:
    """Return the actions that a sync would take, without doing them.

    Counts the ends that the pod's status has in the API; the arguments are those of
    :func:`compute_pod_actions`.
    """
    plan = compute_pod_actions(
        pod,
        with_reported_ends(pod, status, pod.status),
        probes,
        all_containers_restarting=runtime_status.restart_all_active(pod, status),
        in_effect=in_effect,
    )
    return runtime_status.SyncIntent(
        plan.decisions,
        ends=plan.kill_pod and not plan.create_sandbox,
        new_sandbox=plan.create_sandbox,
        stopped=tuple(kill.name for kill in plan.containers_to_kill),
        started=tuple(start.name for start in plan.starts),
        resized=tuple(
            dict.fromkeys(update.name for update in (*plan.resize.memory, *plan.resize.cpu))
        ),
    )
