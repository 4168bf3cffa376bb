"""The verbs of a pod's life: sync, terminate, finish.

Each may be repeated until it succeeds. The list of steps it is created with states what a sync
consists of, and in which order. Must never keep anything between two calls. Source:
docs/reference/behaviour.md, a7, a9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import MAX_TEXT, Step
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import StatusOverride, SyncOutcome
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.sync_step import PodSync, SyncStep
from kubeletpy.podworkers.terminating_updates import TerminatingUpdates
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.runtime_manager.protocol import RuntimeManager

ORPHAN_GRACE = 1
"""Grace period, in seconds, of a pod that no source has."""


class KubePodSyncer:
    """Implements :class:`~kubeletpy.podworkers.verbs.PodSyncer`."""

    def __init__(
        self,
        steps: Sequence[SyncStep],
        composer: StatusComposer,
        runtime: RuntimeManager,
        cache: PodStatusCache,
        *,
        probes: KubeProbeManager,
        recorder: EventRecorder,
        clock: Clock,
        updates: TerminatingUpdates,
    ) -> None:
        """``steps``: the steps of a sync, in order; they are released in reverse order.

        ``updates`` updates what the containers of terminating pods read.
        """
        self._steps = tuple(steps)
        self._updates = updates
        self._composer = composer
        self._runtime = runtime
        self._cache = cache
        self._probes = probes
        self._recorder = recorder
        self._clock = clock

    # -- sync --------------------------------------------------------------------------------

    async def sync_pod(
        self,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        is_terminating: Callable[[], bool],
    ) -> SyncOutcome:
        """Store what is known, and run the steps until one ends the sync.

        A pod that has run to its end needs nothing more. activeDeadlineSeconds ends the sync, too.
        """
        sync = PodSync(pod, mirror, status, is_terminating)
        with span(Step.STATUS):
            if self._composer.store(pod, mirror, status):
                return SyncOutcome(terminal=True)
        deadline = self._composer.deadline(pod)
        loop, ends_at = asyncio.get_running_loop(), None
        if deadline is not None:
            ends_at = loop.time() + deadline - self._clock.now()
        try:
            async with asyncio.timeout_at(ends_at) as limit:
                return replace(await self._run_steps(sync), deadline=deadline)
        except TimeoutError:
            if not limit.expired():
                raise
            # what the runtime is doing goes on; the next sync waits for it and ends the pod
            terminal = self._composer.store(pod, mirror, sync.status, starting=True)
            return SyncOutcome(terminal=terminal, deadline=deadline)
        finally:
            del limit  # it refers to the task; a cancelled task keeps this frame alive

    async def _run_steps(self, sync: PodSync) -> SyncOutcome:
        for step in self._steps:
            with span(step.name) as made:
                outcome = await step.run(sync)
                if outcome is not None and step.name is not Step.RUNTIME:
                    made.error = outcome.error[:MAX_TEXT]
            if outcome is not None:
                return _named(outcome, step)
        return SyncOutcome()

    # -- terminate ---------------------------------------------------------------------------

    async def sync_terminating_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int,
        status_override: StatusOverride | None,
    ) -> SyncOutcome:
        """Stop everything of the pod within ``grace`` seconds; report how its containers ended."""
        composer, override = self._composer, status_override
        composer.store(pod, None, status, override=override)
        self._probes.stop_liveness_and_startup(pod)

        def stopped(ended: PodRuntimeStatus) -> None:
            """A failed pod is reported once nothing of it runs, before its network is removed."""
            if composer.shows_end(pod.uid) and not pod.being_deleted:
                composer.store(pod, None, ended, override=override)

        async with self._updates.during(pod):
            result = await self._runtime.kill_pod(pod, status, grace, stopped)
        error = result.error_message() if result.failed else ""
        final = status
        if not error:
            self._probes.remove_pod(pod.uid)
            if result.status is not None:
                self._cache.set(result.status, own=True)
                final = self._cache.status(pod.uid) or result.status
            if names := ", ".join(sorted(c.name for c in final.running_containers)):
                error = f"containers still run after it: {names}"
        if error:
            self._cache.invalidate(pod.uid)
            message = f"error killing pod: {error}"
            self._recorder.event(pod_reference(pod), WARNING, Reason.FAILED_KILL_POD, message)
            return SyncOutcome(error=message, step=Step.KILL, decisions=result.decisions)
        composer.store(pod, None, final, terminated=True, override=override)
        return SyncOutcome(decisions=result.decisions)

    async def sync_terminating_runtime_pod(self, status: PodRuntimeStatus) -> SyncOutcome:
        """Stop a pod that only the runtime has; there is no status to write."""
        result = await self._runtime.kill_pod(None, status, ORPHAN_GRACE)
        if result.status is not None:
            self._cache.set(result.status, own=True)
        if result.failed:
            self._cache.invalidate(status.uid)
            return SyncOutcome(error=f"error killing pod: {result.error_message()}")
        return SyncOutcome(decisions=result.decisions)

    # -- finish ------------------------------------------------------------------------------

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> SyncOutcome:
        """Release what the steps hold for the pod, last step first, and settle its status.

        Once this succeeds the pod may be deleted from the API.
        """
        self._composer.store(pod, None, status, terminated=True)
        for step in reversed(self._steps):
            outcome = await step.release(pod)
            if outcome is not None:
                return _named(outcome, step)
        self._composer.finish(pod)
        return SyncOutcome()


def _named(outcome: SyncOutcome, step: SyncStep) -> SyncOutcome:
    return replace(outcome, step=step.name) if outcome.error else outcome
