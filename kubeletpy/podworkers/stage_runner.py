"""Runs one sync of a pod worker: finds the pod's status and hands pod and status to the syncer.

Must never decide which sync comes next, nor keep anything between syncs.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import Traces, span
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.records import RunSync, Stage
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.verbs import PodSyncer
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import RuntimeManager

_SPANS = {
    Stage.SYNC: "syncPod",
    Stage.TERMINATING: "syncTerminatingPod",
    Stage.TERMINATED: "syncTerminatedPod",
}
"""The kubelet's names of the spans it sends of a sync."""


class StageRunner:
    """Runs syncs; ``ends`` returns for a uid whether its sync must stop because the pod ends."""

    def __init__(
        self,
        syncer: PodSyncer,
        cache: PodStatusCache,
        runtime: RuntimeManager,
        recorder: EventRecorder,
        *,
        traces: Traces,
        ends: Callable[[str], bool],
    ) -> None:
        self._syncer = syncer
        self._cache = cache
        self._runtime = runtime
        self._recorder = recorder
        self._traces = traces
        self._ends = ends

    async def run(self, run: RunSync) -> SyncOutcome:
        """Sync a pod once: get its status, then do what the stage calls for."""
        work, uid = run.work, run.uid
        named = work.pod or work.runtime_pod
        assert named is not None
        trace = self._traces.enter(uid, named.namespace, named.name)
        if run.stage is not Stage.SYNC:
            trace.ending()
        attributes = {
            "k8s.pod.uid": uid,
            "k8s.pod": f"{named.namespace}/{named.name}",
            "k8s.pod.name": named.name,
            "k8s.namespace.name": named.namespace,
        }
        if run.stage is Stage.SYNC:
            attributes["k8s.pod.update_type"] = work.type
        with self._traces.tracer.span(_SPANS[run.stage], attributes) as sent:
            outcome = await self._run(run)
            if outcome.error:
                sent.failed(outcome.error)
        return outcome

    async def _run(self, run: RunSync) -> SyncOutcome:
        work, uid = run.work, run.uid
        if work.pod is None:
            assert work.runtime_pod is not None
            return await self._syncer.sync_terminating_runtime_pod(work.runtime_pod)
        pod = work.pod
        try:
            status = await self._status(pod)
        except CRIError as error:
            message = f"error determining status: {error}"
            self._recorder.event(pod_reference(pod), WARNING, Reason.FAILED_SYNC, message)
            return SyncOutcome(error=message)
        match run.stage:
            case Stage.SYNC:
                return await self._syncer.sync_pod(
                    pod,
                    work.mirror,
                    status,
                    lambda: self._ends(uid),
                )
            case Stage.TERMINATING:
                return await self._syncer.sync_terminating_pod(
                    pod, status, run.grace, run.status_override
                )
            case _:
                return await self._syncer.sync_terminated_pod(pod, status)

    async def _status(self, pod: Pod) -> PodRuntimeStatus:
        """The pod as the runtime has it: from the cache if certain, else from the runtime."""
        usable = self._cache.usable(pod.uid)
        if usable is not None:
            return usable
        if self._cache.known_absent(pod.uid):
            return PodRuntimeStatus(pod.uid, pod.name, pod.namespace)
        with span(TraceCall.READ_POD):
            status = await self._runtime.get_pod_status(pod.uid, pod.name, pod.namespace)
        if status.empty and self._cache.get(pod.uid) is None:
            self._cache.confirm_absent(pod.uid)
            return status
        self._cache.set(status, own=True)
        return self._cache.usable(pod.uid) or status
