"""The resource claims of a pod: prepared before its sandbox, given back when the pod has ended."""

from __future__ import annotations

from kubeletpy.base.clock import Clock
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import decide_sandbox
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.sync_step import PodSync, SyncStep
from kubeletpy.resources.dra.claim_manager import ClaimManager
from kubeletpy.resources.dra.claims import ClaimProblem, uses_claims

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
"""The wait after a failure doubles. The kubelet retries at the next sync, a minute later."""


class ClaimsStep(SyncStep):
    """Calls the claim manager. Each pod has its own wait between tries."""

    name = Step.CLAIMS

    def __init__(self, claims: ClaimManager, recorder: EventRecorder, clock: Clock) -> None:
        self._claims = claims
        self._recorder = recorder
        self._clock = clock
        self._waits: dict[str, float] = {}

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Prepare them for a sandbox about to be made; an existing one has them already."""
        pod = sync.pod
        if not uses_claims(pod) or not decide_sandbox(pod, sync.status).create:
            return None
        try:
            await self._claims.prepare(pod)
        except ClaimProblem as error:
            message = f"Failed to prepare dynamic resources: {error}"
            self._recorder.event(
                pod_reference(pod), WARNING, Reason.FAILED_PREPARE_DYNAMIC_RESOURCES, message
            )
            return self._again(pod, message)
        self._waits.pop(pod.uid, None)
        return None

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Unprepare the pod's claims; the pod stays in the API until all are unprepared."""
        try:
            await self._claims.unprepare(pod.uid)
        except ClaimProblem as error:
            return self._again(pod, f"Failed to give back dynamic resources: {error}")
        self._waits.pop(pod.uid, None)
        return None

    def _again(self, pod: Pod, message: str) -> SyncOutcome:
        wait = self._waits.get(pod.uid, FIRST_RETRY_S)
        self._waits[pod.uid] = min(wait * 2, LAST_RETRY_S)
        return SyncOutcome(error=message, retry_at=self._clock.now() + wait, waiting=True)
