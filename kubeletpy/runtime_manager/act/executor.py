"""Carry a plan out: the steps of a runtime sync, in the one order that they have.

Source: docs/reference/behaviour.md, c8. Each step is a function below; a step that ends the sync
raises StopSync. Must never decide: what to do, and why, is in the plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import NORMAL, WARNING, pod_reference
from kubeletpy.pods.pod import ContainerKind, field_path, is_sidecar
from kubeletpy.pods.runtime_status import ContainerState
from kubeletpy.pods.sync_results import StartError, SyncAction
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.act.resize_pod import resize_pod
from kubeletpy.runtime_manager.act.run_pod_sandbox import NotWanted, SandboxFailed, SandboxUnchecked
from kubeletpy.runtime_manager.act.start_context import PodContext, StartFailed, Turn
from kubeletpy.runtime_manager.act.sync_run import Parts, StopSync, SyncRun
from kubeletpy.runtime_manager.plan.actions import StartContainer
from kubeletpy.runtime_manager.plan.gc_selection import SHOWN

logger = logging.getLogger(__name__)

REMOVE_CONTAINER_ERROR = "RemoveContainerError"
CRASH_LOOP = "CrashLoopBackOff"
_ENDED = (ContainerState.EXITED, ContainerState.UNKNOWN)


async def run_steps(run: SyncRun, parts: Parts) -> None:
    """All steps, until one ends the sync or the pod is to end."""
    for step in STEPS:
        if run.request.is_terminating():
            return
        try:
            await step(run, parts)
        except (StopSync, NotWanted):
            return


async def kill_pod(run: SyncRun, parts: Parts) -> None:
    """Stop the whole pod when its sandbox must go; with a new one, init containers start over."""
    plan = run.plan
    if plan.replaces_sandbox:
        parts.tools.recorder.event(
            pod_reference(run.pod),
            NORMAL,
            Reason.SANDBOX_CHANGED,
            "Pod sandbox changed, it will be killed and re-created.",
        )
    if not plan.kill_pod:
        return
    results = await parts.killer.kill_pod(
        run.pod, run.status, None, run.draft, plan.kill_pod_reason
    )
    run.results += results
    if any(result.error is not None for result in results):
        raise StopSync
    if plan.create_sandbox:
        await _remove_ended(run, parts, keep=0)


async def kill_containers(run: SyncRun, parts: Parts) -> None:
    """Stop single containers, side by side."""
    victims = run.plan.containers_to_kill
    errors = await asyncio.gather(
        *(
            parts.killer.kill_container(
                run.pod, victim.name, victim.id, message=victim.message, reason=victim.reason
            )
            for victim in victims
        )
    )
    for victim, error in zip(victims, errors, strict=True):
        record = run.status.by_id(victim.id)
        run.draft.touch(victim.id, record.sandbox_id if record else run.sandbox_id)
        run.add(SyncAction.KILL_CONTAINER, victim.name, error, victim.message)
    if any(error is not None for error in errors):
        raise StopSync


async def reset_containers(run: SyncRun, parts: Parts) -> None:
    """Restart-all: remove every container's record, those whose exit asked for it last."""
    for reset in run.plan.containers_to_reset:
        error = None
        if reset.kill:
            error = await parts.killer.kill_container(
                run.pod, reset.name, reset.id, message="killing", override=0
            )
        if error is None:
            try:
                await parts.remover.container(reset.id, keep_logs=True)
                run.draft.removed(reset.id)
            except CRIError as failure:
                error = StartError(REMOVE_CONTAINER_ERROR, str(failure))
        run.add(SyncAction.REMOVE_CONTAINER, reset.name, error, "all containers restart")
        if error is not None:
            raise StopSync


async def prune_init_containers(run: SyncRun, parts: Parts) -> None:
    """Of each init container keep the newest ended record: retries would pile up."""
    await _remove_ended(run, parts, keep=1)


async def create_sandbox(run: SyncRun, parts: Parts) -> None:
    """Make the sandbox that the plan wants, or take the config of the one there is."""
    pod, plan = run.pod, run.plan
    if not plan.create_sandbox:
        if plan.starts:
            try:
                run.sandbox_config = parts.sandboxes.config(pod, plan.attempt)
            except SandboxFailed as failure:
                run.sync_error = failure.error
                raise StopSync from failure
        return
    parts.tools.metrics.started_pods.inc()
    try:
        sandbox = await parts.sandboxes.create(pod, plan.attempt, run.request.is_terminating)
    except SandboxFailed as failure:
        if run.request.is_terminating():
            raise StopSync from failure  # the pod's end took the ground away under it
        parts.tools.metrics.started_pods_errors.inc()
        _pod_warning(
            run,
            parts,
            Reason.FAILED_CREATE_POD_SANDBOX,
            f"Failed to create pod sandbox: {failure.cause}",
        )
        run.add(SyncAction.CREATE_POD_SANDBOX, pod.description, failure.error, _why(run))
        raise StopSync from failure
    except SandboxUnchecked as failure:
        run.add(SyncAction.CREATE_POD_SANDBOX, pod.description, None, _why(run))
        message = f"Unable to get pod sandbox status: {failure}"
        _pod_warning(run, parts, Reason.FAILED_POD_SANDBOX_STATUS, message)
        run.sync_error = StartError("PodSandboxStatusError", message)
        raise StopSync from failure
    run.add(SyncAction.CREATE_POD_SANDBOX, pod.description, None, _why(run))
    run.sandbox_id = sandbox.status.id
    run.sandbox_config = sandbox.config
    run.draft.sandbox_ready(sandbox.status)
    if not pod.host_network:
        run.pod_ips = sandbox.status.ips
    if run.request.on_sandbox_ready is not None:
        run.request.on_sandbox_ready(run.draft.now(parts.tools.source.now()))


async def start_ephemeral_containers(run: SyncRun, parts: Parts) -> None:
    """Start ephemeral containers; one that fails holds nothing up."""
    for action in run.plan.ephemeral_to_start:
        await _start(run, parts, action, Turn())


async def start_init_containers(run: SyncRun, parts: Parts) -> None:
    """Start init containers one after the other; only a sidecar's failure lets the sync go on."""
    for action in run.plan.init_to_start:
        if not await _start(run, parts, action, Turn()) and not is_sidecar(action.container):
            raise StopSync


async def start_regular_containers(run: SyncRun, parts: Parts) -> None:
    """Start regular containers: created in the order of the spec, started side by side.

    A container with a postStart hook holds the next ones up until the hook has run, as pods that
    prepare the ground for their other containers rely on.
    """
    batch: list[Awaitable[bool]] = []
    before: asyncio.Event | None = None
    for action in run.plan.regular_to_start:
        turn = Turn(before)
        before = turn.created
        batch.append(_start(run, parts, action, turn))
        if (action.container.get("lifecycle") or {}).get("postStart"):
            await asyncio.gather(*batch)
            batch, before = [], None
    await asyncio.gather(*batch)


STEPS: tuple[Callable[[SyncRun, Parts], Awaitable[None]], ...] = (
    kill_pod,
    kill_containers,
    reset_containers,
    prune_init_containers,
    create_sandbox,
    resize_pod,
    start_ephemeral_containers,
    start_init_containers,
    start_regular_containers,
)


async def _start(run: SyncRun, parts: Parts, action: StartContainer, turn: Turn) -> bool:
    """Start one container unless its backoff or the pod's end forbids; whether it started."""
    config = run.sandbox_config
    if run.request.is_terminating() or config is None:
        turn.created.set()
        return False
    held = parts.crash_loops.admit(run.pod, action.container, run.status, parts.tools.clock.now())
    if held is not None:
        turn.created.set()
        reference = pod_reference(run.pod, field_path(action.kind, action.name))
        parts.tools.recorder.event(reference, WARNING, Reason.BACK_OFF, held.event)
        run.retry(held.due_at)
        _started(run, action, StartError(CRASH_LOOP, held.message, held.due_at))
        return False
    parts.tools.metrics.started_containers.labels(action.kind).inc()
    context = PodContext(
        run.pod,
        run.status,
        run.sandbox_id,
        config,
        run.pod_ips,
        run.draft,
        run.request.is_terminating,
        run.request.pull_secrets,
        run.request.volume_mounts,
    )
    try:
        await parts.starter.start(context, action, turn)
    except StartFailed as failure:
        parts.tools.metrics.started_containers_errors.labels(action.kind, failure.error.code).inc()
        run.retry(failure.retry_at)
        _started(run, action, failure.error)
        logger.info(
            "container start failed",
            extra={
                "pod": run.pod.key,
                "container": action.name,
                "code": failure.error.code,
                "error": failure.error.message,
            },
        )
        return False
    except NotWanted:
        return False
    _started(run, action, None)
    return True


def _started(run: SyncRun, action: StartContainer, error: StartError | None) -> None:
    step = (
        SyncAction.INIT_CONTAINER
        if action.kind is ContainerKind.INIT
        else SyncAction.START_CONTAINER
    )
    run.add(step, action.name, error, action.reason)
    if error is not None:
        run.start_errors[action.name] = error


async def _remove_ended(run: SyncRun, parts: Parts, *, keep: int) -> None:
    """Of each init container keep the newest ``keep`` ended records.

    Until the API knows how they ended, what a status can show of each stays; in a new sandbox
    nobody takes it for a run of that sandbox (:mod:`.init_containers`). So does what still ran
    when this sync began: nobody has seen yet how its end came out.
    """
    if not run.request.reported():
        keep = max(keep, SHOWN)
    for container in run.pod.init_containers:
        ended = [
            record
            for record in run.status.containers
            if record.name == container["name"]
            and (
                record.state in _ENDED or (not keep and record.state is not ContainerState.RUNNING)
            )
        ]
        for number, record in enumerate(ended[keep:], keep):
            # the newest log tells the next start how many there were when no record does
            await _remove_quietly(run, parts, record.id, keep_logs=number == 0)


async def _remove_quietly(
    run: SyncRun, parts: Parts, container_id: str, *, keep_logs: bool = False
) -> None:
    """Remove a record that is only in the way; the garbage collection tries again."""
    try:
        await parts.remover.container(container_id, keep_logs=keep_logs)
    except CRIError as error:
        logger.info(
            "container record not removed",
            extra={"pod": run.pod.key, "container_id": container_id, "error": str(error)},
        )
    else:
        run.draft.removed(container_id)


def _pod_warning(run: SyncRun, parts: Parts, reason: Reason, message: str) -> None:
    parts.tools.recorder.event(pod_reference(run.pod), WARNING, reason, message)


def _why(run: SyncRun) -> str:
    return next((d.why for d in run.plan.decisions if d.what.startswith("create sandbox")), "")
