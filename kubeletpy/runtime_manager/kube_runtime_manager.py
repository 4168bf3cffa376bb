"""The runtime manager: decides what a pod needs of the runtime, has it done, reports the outcome.

Puts the parts of this package together behind ``protocol.RuntimeManager``. Must never keep
essential state only in memory: after a restart of the agent the runtime's own records are all it
needs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.clock import Clock, SteadyClock
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import Backlog
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import NOWHERE, Placement, Pod
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import StopRecords
from kubeletpy.runtime_manager.act.executor import Executor
from kubeletpy.runtime_manager.act.garbage_collection import ContainerGarbageCollector, Remover
from kubeletpy.runtime_manager.act.kill_pod import Killer, OnStopped, SandboxStopper
from kubeletpy.runtime_manager.act.mutations import Mutations, StartSlots, StopSlots
from kubeletpy.runtime_manager.act.resize_pod import Resizer, ResourcesInEffect
from kubeletpy.runtime_manager.act.run_pod_sandbox import SandboxMaker
from kubeletpy.runtime_manager.act.start_container import ContainerStarter
from kubeletpy.runtime_manager.act.stop_container import ContainerStopper
from kubeletpy.runtime_manager.act.sync_run import StatusDraft, SyncRun, ended_in_their_start
from kubeletpy.runtime_manager.config.sandbox_config import ResolverConfig
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from kubeletpy.runtime_manager.names import POD_UID
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import (
    PlanInputs,
    compute_pod_actions,
    sync_intent,
)
from kubeletpy.runtime_manager.plan.crash_loop import CrashLoopBackoff
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.plan.reported_ends import with_reported_ends
from kubeletpy.runtime_manager.plan.resize import resize_in_progress
from kubeletpy.runtime_manager.protocol import (
    ActuatedInMemory,
    ActuatedResources,
    ContainerProvider,
    LifecycleHooks,
    NoPodCgroupLimits,
    PodCgroupLimits,
    ResizeVolume,
    SandboxWatch,
    SyncPodRequest,
    resize_no_volume,
)
from kubeletpy.runtime_manager.read.status_reader import OwnStarts, health_from_conditions
from kubeletpy.runtime_manager.read.status_source import MessageRoots, StatusSource

logger = logging.getLogger(__name__)

STATUS_ERROR = "RuntimeStatusError"
STARTS_PER_CORE = 4


def default_concurrent_starts() -> int:
    """Sandboxes and containers created at once on this machine."""
    return STARTS_PER_CORE * (os.cpu_count() or 1)


async def _default_handler_only(pod: Pod) -> str:
    if name := pod.spec.get("runtimeClassName"):
        raise runtime_status.RuntimeClassError(f'RuntimeClass "{name}" not found')
    return ""


class KubeRuntimeManager:
    """protocol.RuntimeManager on any CRI runtime."""

    def __init__(
        self,
        runtime: RuntimeService,
        images: ImageManager,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PodStartMetrics,
        *,
        root_dir: str,
        hooks: LifecycleHooks,
        settings: RuntimeSettings | None = None,
        providers: Sequence[ContainerProvider] = (),
        runtime_handler: Callable[[Pod], Awaitable[str]] = _default_handler_only,
        cgroup_parent: Callable[[Pod], str] = lambda pod: "",
        user_namespace: Callable[[Pod], UserNamespaceRange | None] = lambda pod: None,
        host_dns: Callable[[], ResolverConfig | None] = ResolverConfig,
        actuated: ActuatedResources | None = None,
        pod_limits: PodCgroupLimits | None = None,
        resize_volume: ResizeVolume = resize_no_volume,
        placement: Callable[[Pod, str], Placement] = lambda pod, name: NOWHERE,
        runtime_name: str = "containerd",
        max_crash_loop_delay: float = 300,
        concurrent_starts: int | None = None,
        backlog: Backlog | None = None,
        gc_policy: GCPolicy | None = None,
        plan_log: Callable[[PlanInputs, PodActions], None] | None = None,
        sandbox_watch: SandboxWatch | None = None,
    ) -> None:
        """Make it inside a running event loop.

        ``root_dir`` is the kubelet's root directory, ``runtime_name`` what Version reports,
        ``max_crash_loop_delay`` in seconds (crashLoopBackOff.maxContainerRestartPeriod),
        ``concurrent_starts`` how many sandboxes and containers are made at once.
        ``backlog`` counts the pods that wait because of that limit.

        ``providers`` add to what containers are made with, in this order. For what sandboxes need
        see :class:`.act.run_pod_sandbox.SandboxMaker`. ``actuated`` are the records of what pods
        were last given, ``pod_limits`` the limits of their own cgroups, ``placement`` where a
        container runs, by uid of its pod and its name.

        ``plan_log`` is given what each plan is computed from, and the plan, for replays.
        """
        self._plan_log = plan_log
        self._runtime_name = runtime_name
        self.settings = settings = settings or RuntimeSettings()
        roots = MessageRoots(root_dir, settings.pod_logs_dir)
        own_starts = OwnStarts()
        source = StatusSource(runtime, clock, roots, own_starts)
        actuated = actuated or ActuatedInMemory()
        pod_limits = pod_limits or NoPodCgroupLimits()
        at_once = concurrent_starts or default_concurrent_starts()
        backlog = backlog or Backlog()
        starts, stops = StartSlots(at_once, backlog), StopSlots(at_once, backlog)
        mutations = Mutations(source.now)
        self._stop_records = StopRecords(root_dir)
        killer = Killer(
            runtime,
            source,
            ContainerStopper(
                runtime,
                mutations,
                stops,
                recorder,
                hooks=hooks,
                records=self._stop_records,
            ),
            SandboxStopper(runtime, mutations, stops),
            root_dir,
        )
        remover = Remover(runtime, mutations, settings, root_dir)
        sandboxes = SandboxMaker(
            runtime,
            source,
            mutations,
            starts,
            recorder=recorder,
            settings=settings,
            runtime_handler=runtime_handler,
            cgroup_parent=cgroup_parent,
            user_namespace=user_namespace,
            host_dns=host_dns,
            watch=sandbox_watch,
        )
        resizer = Resizer(
            runtime,
            mutations,
            actuated,
            pod_limits,
            settings=settings,
            metrics=metrics,
            placement=placement,
            resize_volume=resize_volume,
        )
        self._starter = ContainerStarter(
            runtime,
            images,
            killer,
            mutations,
            starts,
            recorder=recorder,
            metrics=metrics,
            hooks=hooks,
            actuated=actuated,
            own_starts=own_starts,
            settings=settings,
            root_dir=root_dir,
            providers=providers,
            user_namespace=user_namespace,
        )
        life = SteadyClock(clock)
        crash_loops = CrashLoopBackoff(max_crash_loop_delay, began=life.now())
        self._executor = Executor(
            killer,
            remover,
            sandboxes,
            resizer,
            self._starter,
            crash_loops=crash_loops,
            source=source,
            recorder=recorder,
            clock=clock,
            life=life,
            metrics=metrics,
        )
        self._collector = ContainerGarbageCollector(
            runtime,
            mutations,
            killer,
            remover,
            gc_policy or GCPolicy(),
            own_starts=own_starts,
            settings=settings,
            clock=clock,
        )
        self._runtime, self._source, self._mutations = runtime, source, mutations
        self._killer, self._remover, self._crash_loops = killer, remover, crash_loops
        self._stop_slots, self._clock, self._metrics = stops, clock, metrics
        self._life = life
        self._in_effect = ResourcesInEffect(actuated, pod_limits, settings)

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back."""
        self._starter.forget_runtime()

    @property
    def runtime_name(self) -> str:
        """The runtime's name, as container ids carry it."""
        return self._runtime_name

    async def sync_pod(self, request: SyncPodRequest) -> runtime_status.PodSyncResult:
        """Compute the plan and carry it out. Never raises for what a pod can cause."""
        try:
            status = await self._current(request.pod.uid, request.status)
        except CRIError as error:
            return runtime_status.PodSyncResult(
                sync_error=runtime_status.StartError(STATUS_ERROR, str(error))
            )
        pod = request.pod
        found, status = status, with_reported_ends(pod, status, request.api_status)
        in_effect = self._in_effect.pod_in_effect(pod, found)
        restarting = runtime_status.restart_all_active(pod, found)
        plan = compute_pod_actions(
            pod,
            status,
            request.probes,
            all_containers_restarting=restarting,
            in_effect=in_effect,
        )
        if self._plan_log is not None:
            self._plan_log(PlanInputs(pod, status, request.probes, restarting, in_effect), plan)
        self._in_effect.note(pod, plan.resize)
        if plan.nothing_to_do:
            waits = resize_in_progress(pod, found, in_effect)
            return runtime_status.PodSyncResult(
                decisions=plan.decisions,
                status=None if found is request.status else found,
                resize=runtime_status.ResizeOutcome(in_progress=True) if waits else None,
            )
        run = SyncRun(request, status, plan, StatusDraft(found), plan.sandbox_id, status.ips)
        user_namespaced = plan.create_sandbox and pod.spec.get("hostUsers") is False
        if user_namespaced:
            self._metrics.started_user_namespaced_pods.inc()
        request.on_plan(plan.decisions)
        await self._executor.carry_out(run)
        certain = run.sync_error is None and _all_worked(run.results)
        after, read_error = await self._after(run.draft, found, certain)
        resize = self._resized(run, after or found)
        for ended_at in ended_in_their_start(run.start_errors, after or found):
            run.retry(ended_at)
        result = runtime_status.PodSyncResult(
            results=tuple(run.results),
            decisions=plan.decided(run.start_errors),
            sync_error=run.sync_error or read_error,
            retry_at=run.retry_at,
            status=after,
            start_errors=run.start_errors,
            ended=plan.kill_pod and not plan.create_sandbox,
            resize=resize,
        )
        if user_namespaced and result.failed:
            self._metrics.started_user_namespaced_pods_errors.inc()
        return result

    def intends(
        self, pod: Pod, status: runtime_status.PodRuntimeStatus, probes: runtime_status.ProbeResults
    ) -> runtime_status.SyncIntent:
        """The actions that :meth:`sync_pod` would take; changes nothing, and reads no cgroup."""
        return sync_intent(pod, status, probes, self._in_effect.recorded(pod))

    async def kill_pod(
        self,
        pod: Pod | None,
        status: runtime_status.PodRuntimeStatus,
        grace_override: int | None,
        on_stopped: OnStopped | None = None,
    ) -> runtime_status.PodSyncResult:
        """Stop all containers (in parallel, sidecars last) and all sandboxes of a pod.

        May be cancelled and called again with a shorter grace period: the stop then goes on with
        that.
        """
        try:
            status = await self._current(status.uid, status)
        except CRIError as error:
            return runtime_status.PodSyncResult(
                sync_error=runtime_status.StartError(STATUS_ERROR, str(error))
            )
        draft = StatusDraft(status)
        results = await self._killer.kill_pod(
            pod, status, grace_override, draft, on_stopped=on_stopped
        )
        after, read_error = await self._after(draft, status, _all_worked(results))
        if after is not None and not after.ips:
            after = replace(after, ips=status.ips)
        return runtime_status.PodSyncResult(
            results=tuple(results), sync_error=read_error, status=after
        )

    def hurry(self, on: bool) -> None:
        """Whether the machine is shutting down: stops then don't wait for one another."""
        self._stop_slots.hurry(on)

    async def get_pod_status(
        self, uid: str, name: str, namespace: str
    ) -> runtime_status.PodRuntimeStatus:
        """Read all that the runtime has of a pod. Raises CRIError."""
        return await self._source.read_pod_status(uid, name, namespace)

    async def list_pods(self) -> list[runtime_status.RuntimePodSummary]:
        """Every pod the runtime has, dead ones included. Raises CRIError."""
        return await self._source.list_pods()

    async def event_to_status(
        self,
        event: cri.ContainerEventResponse,
        previous: runtime_status.PodRuntimeStatus | None = None,
    ) -> runtime_status.PodRuntimeStatus | None:
        """The pod's status as a runtime event shows it; None: it shows too little, so query the
        runtime.

        ``previous`` is what was known: it fills in the pod's other sandboxes.
        """
        return await self._source.event_to_status(event, previous)

    async def delete_container(self, container_id: str) -> None:
        """Remove one dead container with its log and link. Raises CRIError."""
        await self._remover.container(container_id)

    async def has_containers(self, uid: str) -> bool:
        """Whether the runtime has any container of a pod, dead or alive. Raises CRIError."""
        chosen = cri.ContainerFilter(label_selector={POD_UID: uid})
        return bool(await self._runtime.list_containers(chosen))

    async def collect_garbage(
        self,
        *,
        all_sources_ready: bool,
        removable: Callable[[str], bool],
        reported: Callable[[str], bool] = lambda uid: True,
    ) -> int:
        """Remove dead containers and sandboxes beyond what is kept. Raises CRIError."""
        self._crash_loops.collect(self._life.now())
        found = await self._collector.collect(
            removable, all_sources_ready=all_sources_ready, reported=reported
        )
        self._in_effect.forget_except(found.known)
        return found.removed

    async def health(self) -> runtime_status.RuntimeHealth:
        """Query the runtime's health. Never raises."""
        try:
            answer = await self._runtime.status()
        except CRIError as error:
            return runtime_status.RuntimeHealth(False, False, str(error), str(error))
        return health_from_conditions(answer.status.conditions)

    async def drain(self, timeout: float) -> None:
        """Wait for the runtime's calls under way, at most ``timeout`` seconds, and for records."""
        await self._mutations.drain(timeout)
        await self._stop_records.close()

    def _resized(
        self, run: SyncRun, after: runtime_status.PodRuntimeStatus
    ) -> runtime_status.ResizeOutcome | None:
        planned = not run.plan.resize.empty
        if planned:
            self._in_effect.resized(run.pod.uid, worked=run.resize_done)
        differs = resize_in_progress(run.pod, after, self._in_effect.pod_in_effect(run.pod, after))
        if not planned and not differs:
            return None
        return runtime_status.ResizeOutcome(
            in_progress=differs or bool(run.resize_error),
            error=run.resize_error,
            done=tuple(run.resized),
        )

    async def _current(
        self, uid: str, status: runtime_status.PodRuntimeStatus
    ) -> runtime_status.PodRuntimeStatus:
        """The status to decide from: the given one, unless the pod was changed since then."""
        await self._mutations.settled(uid)
        if not self._mutations.outdated(uid, status.observed_at):
            return status
        return await self._source.read_pod_status(uid, status.name, status.namespace)

    async def _after(
        self, draft: StatusDraft, before: runtime_status.PodRuntimeStatus, certain: bool
    ) -> tuple[runtime_status.PodRuntimeStatus | None, runtime_status.StartError | None]:
        if not draft.changed:
            return None, None
        source = self._source
        try:
            if certain:
                return await draft.finished(source), None
            # A failed call may have had its effect anyway: a sandbox that nobody has recorded.
            return await source.read_pod_status(before.uid, before.name, before.namespace), None
        except CRIError as error:
            # The effect of the calls is unknown: an old time makes the next sync read it.
            return draft.now(before.observed_at), runtime_status.StartError(
                STATUS_ERROR, str(error)
            )


def _all_worked(results: Sequence[runtime_status.SyncResult]) -> bool:
    return all(result.error is None for result in results)
