"""A runtime sync: what the pod needs is planned, and done step by step in one fixed order.

A step that ends the sync raises StopSync. Must never decide: what to do, and why, is in the plan.
Source: docs/reference/behaviour.md, c8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubeletpy.base.clock import Clock, SteadyClock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_all, run_together
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.pods.runtime_status import (
    KillReason,
    PodRuntimeStatus,
    PodSyncResult,
    ProbeResults,
    ResizeOutcome,
    StartError,
    SyncAction,
    SyncIntent,
    restart_all_active,
)
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.act.garbage_collection import Remover
from kubeletpy.runtime_manager.act.kill_pod import Killer
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.resize_pod import Resizer, ResourcesInEffect
from kubeletpy.runtime_manager.act.run_pod_sandbox import SandboxMaker
from kubeletpy.runtime_manager.act.start_container import ContainerStarter
from kubeletpy.runtime_manager.act.sync_run import (
    NotDesired,
    StartFailed,
    StatusDraft,
    StopSync,
    SyncRun,
    Turn,
    ended_in_their_start,
    unreadable,
)
from kubeletpy.runtime_manager.plan.actions import PodActions, StartContainer
from kubeletpy.runtime_manager.plan.compute_actions import (
    PlanInputs,
    compute_pod_actions,
    sync_intent,
)
from kubeletpy.runtime_manager.plan.crash_loop import CrashLoopBackoff
from kubeletpy.runtime_manager.plan.reported_ends import with_reported_ends
from kubeletpy.runtime_manager.plan.resize import resize_in_progress
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from kubeletpy.runtime_manager.read.status_source import StatusSource

logger = logging.getLogger(__name__)

REMOVE_CONTAINER_ERROR = "RemoveContainerError"
CRASH_LOOP = "CrashLoopBackOff"


class Executor(Component):
    """Has the plan of each sync computed, and carries it out with the parts that do its steps."""

    killer: Killer
    remover: Remover
    sandboxes: SandboxMaker
    resizer: Resizer
    starter: ContainerStarter
    mutations: Mutations
    in_effect: ResourcesInEffect
    crash_loops: CrashLoopBackoff
    source: StatusSource
    recorder: EventRecorder
    clock: Clock
    life: SteadyClock
    metrics: PodStartMetrics
    # Called with the inputs of each plan and the plan, for replays.
    plan_log: Callable[[PlanInputs, PodActions], None] | None

    def __post_init__(self) -> None:
        self._steps: tuple[Callable[[SyncRun], Awaitable[None]], ...] = (
            self._kill_pod,
            self._kill_containers,
            self._reset_containers,
            self.remover.ended_init_containers,
            self.sandboxes.prepare,
            self.resizer.resize,
            self._start_ephemeral_containers,
            self._start_init_containers,
            self._start_regular_containers,
        )

    async def sync_pod(self, request: SyncPodRequest) -> PodSyncResult:
        """Compute the plan and carry it out. Never raises for what a pod can cause."""
        source, pod = self.source, request.pod
        try:
            found = await self.mutations.current(request.status, source.read_pod_status)
        except CRIError as error:
            return unreadable(error)
        status = with_reported_ends(pod, found, request.api_status)
        in_effect = self.in_effect.pod_in_effect(pod, found)
        restarting = restart_all_active(pod, found)
        plan = compute_pod_actions(
            pod, status, request.probes, all_containers_restarting=restarting, in_effect=in_effect
        )
        if self.plan_log is not None:
            self.plan_log(PlanInputs(pod, status, request.probes, restarting, in_effect), plan)
        self.in_effect.note(pod, plan.resize)
        if plan.nothing_to_do:
            waits = resize_in_progress(pod, found, in_effect)
            return PodSyncResult(
                decisions=plan.decisions,
                status=None if found is request.status else found,
                resize=ResizeOutcome(in_progress=True) if waits else None,
            )
        run = SyncRun(request, status, plan, StatusDraft(found), plan.sandbox_id, status.ips)
        user_namespaced = plan.create_sandbox and pod.spec.get("hostUsers") is False
        if user_namespaced:
            self.metrics.started_user_namespaced_pods.inc()
        request.on_plan(plan.decisions)
        await self._carry_out(run)
        certain = run.sync_error is None and all(one.error is None for one in run.results)
        after, read_error = await run.draft.read_back(source, certain=certain)
        resize = self._resized(run, after or found)
        for ended_at in ended_in_their_start(run.start_errors, after or found):
            run.retry(ended_at)
        result = PodSyncResult(
            results=tuple(run.results),
            decisions=plan.decided(run.start_errors),
            sync_error=run.sync_error or read_error,
            retry_at=run.retry_at,
            status=after,
            start_errors=run.start_errors,
            ended=plan.kill_pod and not plan.create_sandbox,
            resize=resize,
        )
        for action in result.failed_actions:
            self.metrics.sync_result_errors.labels(action).inc()
        if user_namespaced and result.failed:
            self.metrics.started_user_namespaced_pods_errors.inc()
        return result

    def intends(self, pod: Pod, status: PodRuntimeStatus, probes: ProbeResults) -> SyncIntent:
        """The actions that :meth:`sync_pod` would take; changes nothing, and reads no cgroup."""
        return sync_intent(pod, status, probes, self.in_effect.recorded(pod))

    def _resized(self, run: SyncRun, after: PodRuntimeStatus) -> ResizeOutcome | None:
        planned = not run.plan.resize.empty
        if planned:
            self.in_effect.resized(run.pod.uid, worked=run.resize_done)
        differs = resize_in_progress(run.pod, after, self.in_effect.pod_in_effect(run.pod, after))
        if not planned and not differs:
            return None
        return ResizeOutcome(
            in_progress=differs or bool(run.resize_error),
            error=run.resize_error,
            done=tuple(run.resized),
        )

    async def _carry_out(self, run: SyncRun) -> None:
        """Run all steps, until one ends the sync or the pod is to end."""
        for step in self._steps:
            if run.request.is_terminating():
                return
            try:
                await step(run)
            except (StopSync, NotDesired):
                return

    async def _kill_pod(self, run: SyncRun) -> None:
        """Stop the whole pod when its sandbox must be replaced; init containers then start over."""
        plan = run.plan
        if plan.replaces_sandbox:
            self.recorder.event(
                pod_reference(run.pod),
                NORMAL,
                Reason.SANDBOX_CHANGED,
                "Pod sandbox changed, it will be killed and re-created.",
            )
        if not plan.kill_pod:
            return
        replaced = plan.create_sandbox or not run.status.has_ready_sandbox
        whole = KillReason.SANDBOX_CHANGED if replaced else KillReason.POD_ENDED
        own = {each.killed: each.kill_reason for each in plan.decisions if each.killed}
        results = await self.killer.stop_pod(
            run.pod,
            run.status,
            None,
            run.draft,
            plan.kill_pod_reason,
            kill_reason=lambda name: own.get(name, whole),
        )
        run.results += results
        if any(result.error is not None for result in results):
            raise StopSync
        if plan.create_sandbox:
            await self.remover.ended_init_containers(run, keep=0)

    async def _kill_containers(self, run: SyncRun) -> None:
        """Stop single containers in parallel."""
        victims = run.plan.containers_to_kill
        errors = await run_all(
            *(
                self.killer.kill_container(
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

    async def _reset_containers(self, run: SyncRun) -> None:
        """Restart-all: remove every container's record, those whose exit requested it last."""
        for reset in run.plan.containers_to_reset:
            error = None
            if reset.kill:
                error = await self.killer.kill_container(
                    run.pod,
                    reset.name,
                    reset.id,
                    message="killing",
                    reason=KillReason.RESTART_ALL,
                    override=0,
                )
            if error is None:
                try:
                    await self.remover.container(reset.id, keep_logs=True)
                    run.draft.removed(reset.id)
                except CRIError as failure:
                    error = StartError(REMOVE_CONTAINER_ERROR, str(failure))
            run.add(SyncAction.REMOVE_CONTAINER, reset.name, error, "all containers restart")
            if error is not None:
                raise StopSync

    async def _start_ephemeral_containers(self, run: SyncRun) -> None:
        """Start ephemeral containers; a failure does not hold anything up."""
        for action in run.plan.ephemeral_to_start:
            await self._start(run, action, Turn())

    async def _start_init_containers(self, run: SyncRun) -> None:
        """Start init containers one by one; only a sidecar's failure lets the sync go on."""
        for action in run.plan.init_to_start:
            if not await self._start(run, action, Turn()) and not is_sidecar(action.container):
                raise StopSync

    async def _start_regular_containers(self, run: SyncRun) -> None:
        """Start regular containers: created in the order of the spec, started in parallel.

        A container with a postStart hook holds up the next ones until the hook has run: some pods
        rely on it to prepare for their other containers.
        """
        batch: list[Awaitable[bool]] = []
        before: asyncio.Event | None = None
        for action in run.plan.regular_to_start:
            turn = Turn(before)
            before = turn.created
            batch.append(self._start(run, action, turn))
            if (action.container.get("lifecycle") or {}).get("postStart"):
                await run_together(*batch)
                batch, before = [], None
        await run_together(*batch)

    async def _start(self, run: SyncRun, action: StartContainer, turn: Turn) -> bool:
        """Start one container, unless in backoff or in an ending pod; whether it started."""
        if run.request.is_terminating():
            turn.created.set()
            return False
        now, offset = self.life.now(), self.life.offset()
        held = self.crash_loops.admit(run.pod, action.container, run.status, now, offset)
        if held is not None:
            turn.created.set()
            self.recorder.event(run.reference(action), WARNING, Reason.BACK_OFF, held.event)
            run.retry(held.due_at)
            note(TraceCall.BACK_OFF, action.name, lasts=held.due_at - self.clock.now())
            _started(run, action, StartError(CRASH_LOOP, held.message, held.due_at))
            return False
        self.metrics.started_containers.labels(action.kind).inc()
        try:
            await self.starter.start(run, action, turn)
        except StartFailed as failure:
            self.metrics.started_containers_errors.labels(action.kind, failure.error.code).inc()
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
        except NotDesired:
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
