"""The verb *terminate*: stop everything of a pod, and report how its containers ended.

May be repeated until it succeeds; success means that nothing of the pod runs any more. Source:
docs/reference/behaviour.md, a9.
"""

from __future__ import annotations

from kubeletpy.events.recorder import WARNING, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.api_status import StatusWriter
from kubeletpy.podworkers.protocol import StatusOverride, SyncOutcome
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.status.generate import TERMINAL

ORPHAN_GRACE = 1
"""Seconds for a pod that nobody wants."""


async def terminate(
    services: SyncServices,
    writer: StatusWriter,
    pod: Pod,
    status: PodRuntimeStatus,
    *,
    grace: int,
    override: StatusOverride | None,
) -> SyncOutcome:
    """Stop a pod within ``grace`` seconds; no error: nothing runs any more."""
    writer.store(pod, None, status, override=override)
    services.probes.stop_liveness_and_startup(pod)

    def stopped(ended: PodRuntimeStatus) -> None:
        """A pod that has failed shows it when nothing of it runs, not after its network is gone."""
        kept = services.statuses.get_status(pod.uid) or {}
        if kept.get("phase") in TERMINAL and not pod.being_deleted:
            writer.store(pod, None, ended, override=override)

    result = await services.runtime.kill_pod(pod, status, grace, stopped)
    if result.failed:
        services.cache.invalidate(pod.uid)
        message = f"error killing pod: {result.error_message()}"
        services.recorder.event(pod_reference(pod), WARNING, "FailedKillPod", message)
        return SyncOutcome(error=message, step="kill", decisions=result.decisions)
    services.probes.remove_pod(pod.uid)
    final = result.status or status
    if result.status is not None:
        services.cache.set(result.status, own=True)
        final = services.cache.status(pod.uid) or result.status
    if final.running_containers:
        services.cache.invalidate(pod.uid)
        names = ", ".join(sorted(c.name for c in final.running_containers))
        message = f"error killing pod: containers still run after it: {names}"
        services.recorder.event(pod_reference(pod), WARNING, "FailedKillPod", message)
        return SyncOutcome(error=message, step="kill", decisions=result.decisions)
    writer.store(pod, None, final, terminated=True, override=override)
    return SyncOutcome(decisions=result.decisions)


async def terminate_runtime_pod(services: SyncServices, status: PodRuntimeStatus) -> SyncOutcome:
    """Stop a pod that only the runtime knows; there is no status to write."""
    result = await services.runtime.kill_pod(None, status, ORPHAN_GRACE)
    if result.status is not None:
        services.cache.set(result.status, own=True)
    if result.failed:
        services.cache.invalidate(status.uid)
        return SyncOutcome(error=f"error killing pod: {result.error_message()}")
    return SyncOutcome(decisions=result.decisions)
