"""The verb *sync*: bring the runtime to what a pod asks for, and its status to the API.

The steps are listed in SYNC_STEPS in the order they run; each may end the sync with an outcome.
Source of the order: docs/reference, sync loop: SyncPod. Nothing here decides what is to be done in
the runtime: that is the runtime manager's plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.events.recorder import WARNING, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.api_status import StatusWriter
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.pull_secrets import fetch_pull_secrets
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.runtime_manager.protocol import Mount, PullSecret, SyncPodRequest
from kubeletpy.runtime_manager.results import Decision, PodSyncResult
from kubeletpy.trace.spans import phase
from kubeletpy.volumes.protocol import VolumeError

log = logging.getLogger(__name__)

CRASH_LOOP = "CrashLoopBackOff"
MAX_ROUNDS = 20
"""Runtime syncs in one step: more than any pod has stages, yet not without end."""
EARLY_STATUS_AFTER = 1.0
"""Seconds after the sandbox is there until its IPs are shown although containers still start: most
pods are Running by then, also in a burst, and are spared a write (with 0.25 s a burst of 20 wrote
2.9 times a pod, with 1 s 2.0 times)."""


@dataclass(slots=True)
class SyncContext:
    """What the steps of one sync hand on."""

    services: SyncServices
    writer: StatusWriter
    update_type: UpdateType
    pod: Pod
    mirror: Pod | None
    status: PodRuntimeStatus
    is_terminating: Callable[[], bool]
    mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    pull_secrets: Sequence[PullSecret] = ()
    told: list[Decision] = field(default_factory=list)

    def planned(self, decisions: Sequence[Decision]) -> None:
        """Tell at once what is going to be done, and why."""
        self.told += decisions
        self.services.decided(self.pod.uid, decisions)

    def warn(self, reason: str, message: str) -> None:
        """A Warning event on the pod."""
        self.services.recorder.event(pod_reference(self.pod), WARNING, reason, message)


SyncStep = Callable[[SyncContext], Awaitable[SyncOutcome | None]]


async def store_status(ctx: SyncContext) -> SyncOutcome | None:
    """Write what is known; a pod that has run to its end needs nothing more."""
    if ctx.writer.store(ctx.pod, ctx.mirror, ctx.status):
        return SyncOutcome(terminal=True)
    return None


async def network_gate(ctx: SyncContext) -> SyncOutcome | None:
    """No sandbox without network, except on the host's."""
    error = ctx.services.network_error()
    if not error or ctx.pod.host_network:
        return None
    message = f"network is not ready: {error}"
    ctx.warn("NetworkNotReady", message)
    return SyncOutcome(error=message, network_not_ready=True)


async def pod_cgroup(ctx: SyncContext) -> SyncOutcome | None:
    """The pod's cgroup with its limits, before anything is put in it.

    Containers that run although it is gone are out of every limit: they are stopped first.
    """
    cgroups = ctx.services.cgroups
    try:
        if not cgroups.exists(ctx.pod) and _some_run(ctx.pod, ctx.status):
            await _stop_unlimited(ctx)
        cgroups.ensure(ctx.pod)
    except CgroupError as error:
        message = f"unable to ensure pod container exists: {error}"
        ctx.warn("FailedCreatePodContainer", message)
        return SyncOutcome(error=message)
    return None


async def mirror_pod(ctx: SyncContext) -> SyncOutcome | None:
    """A static pod's picture in the API; what goes wrong there never stops the pod."""
    if ctx.pod.is_static and ctx.services.mirrors is not None:
        ctx.services.mirrors.reconcile(ctx.pod, ctx.mirror)
    return None


async def directories(ctx: SyncContext) -> SyncOutcome | None:
    """{root}/pods/{uid} with what kubelet-aware tools expect in it."""
    if _has_directories(ctx.services.pods_dir, ctx.pod.uid):
        return None
    try:
        await asyncio.to_thread(_make_directories, ctx.services.pods_dir, ctx.pod.uid)
    except OSError as error:
        message = f"error making pod data directories: {error}"
        ctx.warn("Failed", message)
        return SyncOutcome(error=message)
    return None


async def volumes(ctx: SyncContext) -> SyncOutcome | None:
    """Everything mounted before any container is made."""
    try:
        ctx.mounts = await ctx.services.volumes.set_up(ctx.pod)
    except VolumeError as error:
        message = f"Unable to attach or mount volumes: {error}"
        if not error.told:
            ctx.warn("FailedMount", message)
        return SyncOutcome(error=message)
    return None


async def pull_secrets(ctx: SyncContext) -> SyncOutcome | None:
    """Credentials, when a container may have to be started."""
    if not _all_run(ctx.pod, ctx.status):
        ctx.pull_secrets = await fetch_pull_secrets(
            ctx.services.kube_api, ctx.pod, ctx.services.recorder
        )
    return None


async def probes(ctx: SyncContext) -> SyncOutcome | None:
    """Probe what runs."""
    ctx.services.probes.add_pod(ctx.pod)
    return None


async def runtime(ctx: SyncContext) -> SyncOutcome | None:
    """The runtime sync, its reasons, and the status that follows, at once.

    What was done may make the next thing possible (a sidecar runs: the containers may start), and
    nobody else would tell us what we did ourselves: so as long as something was done, look again.
    May be cancelled: what the runtime is doing then goes on, and the next step waits for it.
    """
    decisions = list[Decision]()
    for _ in range(MAX_ROUNDS):
        result = await _runtime_round(ctx)
        decisions += [one for one in result.decisions if one not in ctx.told]
        terminal = _take_over(ctx, result) or (result.ended and not result.failed)
        if terminal or not result.acted or not _only_waits(result) or ctx.is_terminating():
            break
    return SyncOutcome(
        terminal=terminal,
        error="" if terminal else result.error_message(),
        waiting=_is_held_back(result),
        retry_at=result.retry_at,
        decisions=tuple(decisions),
    )


async def _runtime_round(ctx: SyncContext) -> PodSyncResult:
    early = _EarlyStatus(ctx)
    try:
        return await ctx.services.runtime.sync_pod(
            SyncPodRequest(
                pod=ctx.pod,
                status=ctx.status,
                probes=ctx.services.probes.results(ctx.pod),
                pull_secrets=ctx.pull_secrets,
                volume_mounts=ctx.mounts,
                on_sandbox_ready=early.sandbox_ready,
                is_terminating=ctx.is_terminating,
                on_plan=ctx.planned,
                told=lambda: ctx.services.statuses.is_told(ctx.pod.uid),
            )
        )
    finally:
        early.cancel()


SYNC_STEPS: tuple[SyncStep, ...] = (
    store_status,
    network_gate,
    pod_cgroup,
    mirror_pod,
    directories,
    volumes,
    pull_secrets,
    probes,
    runtime,
)


STEP_WORDS = {"runtime": "runtime sync", "store_status": "compute status"}
"""What a step is called in timelines, where its own name does not say it."""


async def run_sync(ctx: SyncContext) -> SyncOutcome:
    """Run the steps until one ends the sync, or the pod's activeDeadlineSeconds do."""
    deadline = None
    try:
        async with asyncio.timeout(None) as limit:
            for step in SYNC_STEPS:
                outcome = await _run_step(ctx, step)
                if outcome is not None:
                    return replace(outcome, deadline=deadline)
                if step is store_status:
                    deadline = ctx.writer.deadline(ctx.pod)
                    if deadline is not None:
                        left = deadline - ctx.services.clock.now()
                        limit.reschedule(asyncio.get_running_loop().time() + left)
    except TimeoutError:
        if not limit.expired():
            raise
        # what the runtime is doing goes on; the next step waits for it and ends the pod
        terminal = ctx.writer.store(ctx.pod, ctx.mirror, ctx.status)
        return SyncOutcome(terminal=terminal, deadline=deadline)
    return SyncOutcome(deadline=deadline)


async def _run_step(ctx: SyncContext, step: SyncStep) -> SyncOutcome | None:
    with phase(STEP_WORDS.get(step.__name__, step.__name__.replace("_", " "))):
        outcome = await step(ctx)
    if outcome is None or not outcome.error:
        return outcome
    return replace(outcome, step=step.__name__)


def _take_over(ctx: SyncContext, result: PodSyncResult) -> bool:
    """Keep what the runtime sync found out; whether the pod has run to its end."""
    services, uid = ctx.services, ctx.pod.uid
    services.reasons.update(uid, result)
    if result.status is not None:
        services.cache.set(result.status, own=True)
    elif result.failed:
        services.cache.invalidate(uid)
    resized = result.sync_error is None and services.resizes.synced(ctx.pod, result.resize)
    news = result.acted or result.failed or result.start_errors or resized
    if ctx.is_terminating() or not news:
        return False
    ctx.status = services.cache.usable(uid) or result.status or ctx.status
    return ctx.writer.store(ctx.pod, ctx.mirror, ctx.status)


def _is_held_back(result: PodSyncResult) -> bool:
    return result.sync_error is None and all(
        step.error is None or step.error.code.endswith("BackOff") for step in result.results
    )


def _only_waits(result: PodSyncResult) -> bool:
    """Whether all that failed is that containers wait out their backoff: the others may go on."""
    return result.sync_error is None and all(
        step.error is None or step.error.code == CRASH_LOOP for step in result.results
    )


class _EarlyStatus:
    """Shows the pod's IPs early when its containers take long to start."""

    def __init__(self, ctx: SyncContext) -> None:
        self._ctx = ctx
        self._timer: asyncio.TimerHandle | None = None

    def sandbox_ready(self, status: PodRuntimeStatus) -> None:
        self._ctx.services.cache.set(status, own=True)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EARLY_STATUS_AFTER, self._store, status)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _store(self, status: PodRuntimeStatus) -> None:
        if not self._ctx.is_terminating():
            self._ctx.writer.store(self._ctx.pod, self._ctx.mirror, status)


def _has_directories(pods_dir: Path, uid: str) -> bool:
    return (pods_dir / uid / "plugins").is_dir()


def _make_directories(pods_dir: Path, uid: str) -> None:
    for path in (pods_dir, pods_dir / uid, pods_dir / uid / "volumes", pods_dir / uid / "plugins"):
        path.mkdir(mode=0o750, exist_ok=True)


async def _stop_unlimited(ctx: SyncContext) -> None:
    services, pod = ctx.services, ctx.pod
    log.warning("pod runs without its cgroup: it is stopped", extra={"pod": pod.key})
    result = await services.runtime.kill_pod(pod, ctx.status, None)
    if result.status is not None:
        services.cache.set(result.status, own=True)
        ctx.status = services.cache.status(pod.uid) or result.status
    if result.failed:
        services.cache.invalidate(pod.uid)
        raise CgroupError(f"the pod runs without it and was not stopped: {result.error_message()}")


def _some_run(pod: Pod, status: PodRuntimeStatus) -> bool:
    names = {container["name"] for container in pod.containers}
    return any(container.name in names for container in status.running_containers)


def _all_run(pod: Pod, status: PodRuntimeStatus) -> bool:
    running = {container.name for container in status.running_containers}
    return all(container["name"] in running for container in pod.containers)
