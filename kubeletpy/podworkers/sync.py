"""The verb *sync*: bring the runtime to what a pod asks for, and its status to the API.

The steps are listed in SYNC_STEPS in the order they run; each may end the sync with an outcome.
Source of the order: docs/reference/behaviour.md, a7. Nothing here decides what is to be done in the
runtime: that is the runtime manager's plan.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.pull_secrets import fetch_pull_secrets
from kubeletpy.podworkers.runtime_step import runtime
from kubeletpy.podworkers.sync_context import SyncContext, SyncStep
from kubeletpy.trace.spans import phase
from kubeletpy.volumes.protocol import VolumeError

log = logging.getLogger(__name__)


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
