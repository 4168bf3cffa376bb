"""One sync of a pod: its steps, the verbs of a pod's life, and their choice by stage.

Sync, terminate and finish may each be repeated until they succeed, and keep nothing between two
calls. The steps and their order are a list in :mod:`kubeletpy.agent.core`; to add a capability, add
a step to :mod:`kubeletpy.podworkers.steps` and an entry to that list. Source:
docs/reference/behaviour.md, a7, a9.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import background, wait_within
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import MAX_TEXT, Step, TraceCall
from kubeletpy.metrics.trace.spans import Traces, span
from kubeletpy.pods.pod import Mount, Pod, PullSecret
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.records import RunSync, Stage, StatusOverride, SyncOutcome
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import KillPod, ReadPod


class PodSync(Struct):
    """One sync of a pod in progress: what its steps pass on to each other."""

    pod: Pod
    mirror: Pod | None
    status: PodRuntimeStatus
    is_terminating: Callable[[], bool]
    """Whether the pod's end was requested meanwhile: nothing more is started then."""
    mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> what is mounted into it."""
    pull_secrets: Sequence[PullSecret] = ()
    pull_failed: Callable[[], None] | None = None
    """Reports the pull secrets that are missing; called once a pull has failed."""


class SyncStep(Component):
    """One step of a sync: the one interface through which every pod capability comes in.

    A step is repeatable and keeps nothing of a single sync.
    """

    name: ClassVar[Step]

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Run the step; an outcome ends the sync, with or without an error."""
        raise NotImplementedError

    async def keep_up(self, pod: Pod) -> None:
        """The pod terminates, its containers still run: update what they read.

        Called now and then, and when something changes. Never raises for what can't be updated.
        """
        return

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """The pod has ended: release what this step got for it; with an outcome it is retried.

        Called in reverse order of the steps. Steps that hold nothing for a pod don't override it.
        """
        return None


FIRST_S = 1.0
"""Seconds until the first update of a terminating pod: most have ended by then."""


class _Terminating(Struct):
    pod: Pod
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class TerminatingUpdates(Component):
    """Has the steps update what the containers of a terminating pod read, until all have ended.

    A shutdown hook may run for as long as the grace period, which can exceed the life of a token.
    While a pod runs, its syncs update its volumes; while it terminates, one sync waits for the
    containers to stop, and this runs beside it. The kubelet updates nothing in that time. Source:
    docs/reference/behaviour.md, i4.
    """

    steps: Sequence[SyncStep]
    # The least seconds between two updates; the most are 1.5 times that.
    period_s: float
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._pods: dict[str, _Terminating] = {}

    def touch(self, pod: Pod) -> None:
        """Update a terminating pod now: it has changed, or something that it reads has."""
        if (found := self._pods.get(pod.uid)) is not None:
            found.pod = pod
            found.changed.set()

    @contextlib.asynccontextmanager
    async def during(self, pod: Pod) -> AsyncIterator[None]:
        """Update ``pod`` as long as the body runs."""
        terminating = self._pods[pod.uid] = _Terminating(pod)
        name = f"updates of terminating pod {pod.uid}"
        async with background(self._update(terminating), name):
            try:
                yield
            finally:
                del self._pods[pod.uid]

    async def _update(self, terminating: _Terminating) -> None:
        wait = FIRST_S
        while True:
            await wait_within(terminating.changed, wait)
            terminating.changed.clear()
            for step in self.steps:
                await step.keep_up(terminating.pod)
            wait = self.period_s * (1 + self.rng.random() / 2)


ORPHAN_GRACE = 1
"""Grace period, in seconds, of a pod that no source has."""
_SPANS = {
    Stage.SYNC: "syncPod",
    Stage.TERMINATING: "syncTerminatingPod",
    Stage.TERMINATED: "syncTerminatedPod",
}
"""The kubelet's names of the spans of a sync."""


class KubePodSyncer(Component):
    """Syncs, terminates and finishes pods; each may be called again until it succeeds."""

    # In the order of a sync; they are released in reverse order.
    steps: Sequence[SyncStep]
    composer: StatusComposer
    cache: PodStatusCache
    read_pod: ReadPod
    kill_pod: KillPod
    probes: KubeProbeManager
    recorder: EventRecorder
    clock: Clock
    # Updates what the containers of terminating pods read.
    updates: TerminatingUpdates
    traces: Traces

    # -- one sync of a worker ----------------------------------------------------------------

    async def run(self, run: RunSync, is_terminating: Callable[[], bool]) -> SyncOutcome:
        """Sync a pod once, within a trace and a span: find its status, do what its stage needs.

        ``is_terminating``: whether the pod's end was requested meanwhile.
        """
        work, uid = run.work, run.uid
        named = work.pod or work.runtime_pod
        assert named is not None
        trace = self.traces.enter(uid, named.namespace, named.name)
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
        with self.traces.tracer.span(_SPANS[run.stage], attributes) as sent:
            outcome = await self._run_stage(run, is_terminating)
            if outcome.error:
                sent.failed(outcome.error)
        return outcome

    async def _run_stage(self, run: RunSync, is_terminating: Callable[[], bool]) -> SyncOutcome:
        work = run.work
        if work.pod is None:
            assert work.runtime_pod is not None
            return await self.sync_terminating_runtime_pod(work.runtime_pod)
        pod = work.pod
        try:
            status = await self._status(pod)
        except CRIError as error:
            message = f"error determining status: {error}"
            self.recorder.event(pod_reference(pod), WARNING, Reason.FAILED_SYNC, message)
            return SyncOutcome(error=message)
        match run.stage:
            case Stage.SYNC:
                return await self.sync_pod(pod, work.mirror, status, is_terminating)
            case Stage.TERMINATING:
                return await self.sync_terminating_pod(pod, status, run.grace, run.status_override)
            case _:
                return await self.sync_terminated_pod(pod, status)

    async def _status(self, pod: Pod) -> PodRuntimeStatus:
        """The pod as the runtime has it: from the cache if certain, else from the runtime."""
        usable = self.cache.usable(pod.uid)
        if usable is not None:
            return usable
        if self.cache.known_absent(pod.uid):
            return PodRuntimeStatus(pod.uid, pod.name, pod.namespace)
        with span(TraceCall.READ_POD):
            status = await self.read_pod(pod.uid, pod.name, pod.namespace)
        if status.empty and self.cache.get(pod.uid) is None:
            self.cache.confirm_absent(pod.uid)
            return status
        self.cache.set(status, own=True)
        return self.cache.usable(pod.uid) or status

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
            if self.composer.store(pod, mirror, status):
                return SyncOutcome(terminal=True)
        deadline = self.composer.deadline(pod)
        loop, ends_at = asyncio.get_running_loop(), None
        if deadline is not None:
            ends_at = loop.time() + deadline - self.clock.now()
        try:
            async with asyncio.timeout_at(ends_at) as limit:
                return replace(await self._run_steps(sync), deadline=deadline)
        except TimeoutError:
            if not limit.expired():
                raise
            # what the runtime is doing goes on; the next sync waits for it and ends the pod
            terminal = self.composer.store(pod, mirror, sync.status, starting=True)
            return SyncOutcome(terminal=terminal, deadline=deadline)
        finally:
            del limit  # it refers to the task; a cancelled task keeps this frame alive

    async def _run_steps(self, sync: PodSync) -> SyncOutcome:
        for step in self.steps:
            with span(step.name) as made:
                outcome = await step.run(sync)
                if outcome is not None and step.name is not Step.RUNTIME:
                    made.error = outcome.error[:MAX_TEXT]
            if outcome is not None:
                return _named(outcome, step)
        return SyncOutcome()

    # -- terminate ---------------------------------------------------------------------------

    async def sync_terminating_pod(
        self, pod: Pod, status: PodRuntimeStatus, grace: int, status_override: StatusOverride | None
    ) -> SyncOutcome:
        """Stop everything of the pod within ``grace`` seconds; report how its containers ended."""
        composer, override = self.composer, status_override
        composer.store(pod, None, status, override=override)
        self.probes.stop_liveness_and_startup(pod)

        def stopped(ended: PodRuntimeStatus) -> None:
            """A failed pod is reported once nothing of it runs, before its network is removed."""
            if composer.shows_end(pod.uid) and not pod.being_deleted:
                composer.store(pod, None, ended, override=override)

        async with self.updates.during(pod):
            result = await self.kill_pod(pod, status, grace, stopped)
        error = result.error_message() if result.failed else ""
        final = status
        if not error:
            self.probes.remove_pod(pod.uid)
            if result.status is not None:
                self.cache.set(result.status, own=True)
                final = self.cache.status(pod.uid) or result.status
            if names := ", ".join(sorted(c.name for c in final.running_containers)):
                error = f"containers still run after it: {names}"
        if error:
            self.cache.invalidate(pod.uid)
            message = f"error killing pod: {error}"
            self.recorder.event(pod_reference(pod), WARNING, Reason.FAILED_KILL_POD, message)
            return SyncOutcome(error=message, step=Step.KILL, decisions=result.decisions)
        composer.store(pod, None, final, terminated=True, override=override)
        return SyncOutcome(decisions=result.decisions)

    async def sync_terminating_runtime_pod(self, status: PodRuntimeStatus) -> SyncOutcome:
        """Stop a pod that only the runtime has; there is no status to write."""
        result = await self.kill_pod(None, status, ORPHAN_GRACE, None)
        if result.status is not None:
            self.cache.set(result.status, own=True)
        if result.failed:
            self.cache.invalidate(status.uid)
            return SyncOutcome(error=f"error killing pod: {result.error_message()}")
        return SyncOutcome(decisions=result.decisions)

    # -- finish ------------------------------------------------------------------------------

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> SyncOutcome:
        """Release what the steps hold for the pod, last step first, and settle its status.

        Once this succeeds the pod may be deleted from the API.
        """
        self.composer.store(pod, None, status, terminated=True)
        for step in reversed(self.steps):
            outcome = await step.release(pod)
            if outcome is not None:
                return _named(outcome, step)
        self.composer.statuses.finish(pod)
        return SyncOutcome()


def _named(outcome: SyncOutcome, step: SyncStep) -> SyncOutcome:
    return replace(outcome, step=step.name) if outcome.error else outcome
