"""Steps that reserve what a pod runs with: its cgroup and its resource claims."""

from __future__ import annotations

import logging

from kubeletpy.base.clock import Clock
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, decide_sandbox
from kubeletpy.podworkers.records import SyncOutcome
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import PodSync, SyncStep
from kubeletpy.resources.cgroups.pod_cgroups import PodCgroups
from kubeletpy.resources.cgroups.values import CgroupError
from kubeletpy.resources.dra.claim_manager import ClaimManager
from kubeletpy.resources.dra.model import ClaimProblem, uses_claims
from kubeletpy.runtime_manager.protocol import KillPod

log = logging.getLogger(__name__)


class PodCgroup(SyncStep):
    """Makes the pod's cgroup before anything is put in it, and removes it after everything.

    Containers that run without it escape every limit: they are stopped first.
    """

    name = Step.CGROUP

    cgroups: PodCgroups
    kill_pod: KillPod
    cache: PodStatusCache
    recorder: EventRecorder

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Make the cgroup if it does not exist."""
        try:
            if not self.cgroups.exists(sync.pod) and _some_run(sync.pod, sync.status):
                await self._stop_unlimited(sync)
            await self.cgroups.ensure(sync.pod)
        except CgroupError as error:
            message = f"unable to ensure pod container exists: {error}"
            return self._failed(sync.pod, Reason.FAILED_CREATE_POD_CONTAINER, message)
        return None

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Remove the cgroup of a pod that has ended."""
        try:
            with span(TraceCall.REMOVE_CGROUP):
                await self.cgroups.destroy(pod)
        except CgroupError as error:
            message = f"cgroup not removed: {error}"
            return self._failed(pod, Reason.FAILED_REMOVE_POD_CONTAINER, message)
        return None

    async def _stop_unlimited(self, sync: PodSync) -> None:
        pod = sync.pod
        log.warning("pod runs without its cgroup: it is stopped", extra={"pod": pod.key})
        result = await self.kill_pod(pod, sync.status, None, None)
        if result.status is not None:
            self.cache.set(result.status, own=True)
            sync.status = self.cache.status(pod.uid) or result.status
        if result.failed:
            self.cache.invalidate(pod.uid)
            raise CgroupError(
                f"the pod runs without it and was not stopped: {result.error_message()}"
            )

    def _failed(self, pod: Pod, reason: Reason, message: str) -> SyncOutcome:
        self.recorder.event(pod_reference(pod), WARNING, reason, message)
        return SyncOutcome(error=message)


def _some_run(pod: Pod, status: PodRuntimeStatus) -> bool:
    names = {container["name"] for container in pod.containers}
    return any(container.name in names for container in status.running_containers)


FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
"""The wait after a failure doubles. The kubelet retries at the next sync, a minute later."""


class ClaimsStep(SyncStep):
    """Prepares a pod's resource claims before its sandbox, and unprepares them at its end."""

    name = Step.CLAIMS

    claims: ClaimManager
    recorder: EventRecorder
    clock: Clock

    def __post_init__(self) -> None:
        self._waits: dict[str, float] = {}
        """Seconds until the next try, by pod uid."""

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Prepare the claims for a sandbox about to be made; an existing one has them already."""
        pod = sync.pod
        if not uses_claims(pod) or not decide_sandbox(pod, sync.status).create:
            return None
        try:
            await self.claims.prepare(pod)
        except ClaimProblem as error:
            message = f"Failed to prepare dynamic resources: {error}"
            self.recorder.event(
                pod_reference(pod), WARNING, Reason.FAILED_PREPARE_DYNAMIC_RESOURCES, message
            )
            return self._again(pod, message, error)
        self._waits.pop(pod.uid, None)
        return None

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Unprepare the pod's claims; the pod stays in the API until all are unprepared."""
        try:
            await self.claims.unprepare(pod.uid)
        except ClaimProblem as error:
            return self._again(pod, f"Failed to give back dynamic resources: {error}", error)
        self._waits.pop(pod.uid, None)
        return None

    def _again(self, pod: Pod, message: str, error: ClaimProblem) -> SyncOutcome:
        wait = self._waits.get(pod.uid, FIRST_RETRY_S)
        self._waits[pod.uid] = min(wait * 2, LAST_RETRY_S)
        retry_at = self.clock.now() + wait
        return SyncOutcome(error=message, retry_at=retry_at, waiting=True, cause=error.cause)
