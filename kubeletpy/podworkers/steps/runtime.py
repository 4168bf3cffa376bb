"""The runtime sync, the last step of a pod's sync, and the small steps around it.

:mod:`kubeletpy.runtime_manager` decides what the runtime is to do; the steps pass on what it needs,
and report what it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kubeletpy.base.structs import Component
from kubeletpy.images.policy import ImageErrorCode
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus, PodSyncResult
from kubeletpy.podworkers.history import CRASH_LOOP, ReasonCache
from kubeletpy.podworkers.records import SyncOutcome
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.syncer import PodSync, SyncStep
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.runtime_manager.protocol import SyncPod, SyncPodRequest

MAX_ROUNDS = 20
"""Runtime syncs in one step: more than any pod has stages, yet bounded."""
EARLY_STATUS_AFTER = 1.0
"""Seconds from the sandbox's creation until its IPs are shown even if containers are still
starting. Most pods are Running by then, even in a burst, and need no write. A burst of 20
took 2.9 writes per pod with 0.25 s, and 2.0 with 1 s."""


class RuntimeSync(SyncStep):
    """The runtime sync, its reasons, and the status that follows, at once.

    One action may make the next possible (once a sidecar runs, the containers may start), and no
    other component reports the worker's own actions. So it checks again as long as something was
    done. May be cancelled: the runtime's current work goes on, and the next sync waits for it.
    """

    name = Step.RUNTIME

    sync_pod: SyncPod
    composer: StatusComposer
    cache: PodStatusCache
    probes: KubeProbeManager
    reasons: ReasonCache
    resizes: AllocationManager
    # whether the API has the newest status of a pod (by uid).
    is_reported: Callable[[str], bool]
    # called with the decisions about a pod before they are carried out.
    decided: Callable[[str, Sequence[Decision]], None]

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Sync until there is nothing more to do; ends the pod's sync."""
        reported: list[Decision] = []
        decisions: list[Decision] = []
        for _ in range(MAX_ROUNDS):
            result = await self._round(sync, reported)
            decisions += [one for one in result.decisions if one not in reported]
            if sync.pull_failed is not None and _pull_failed(result):
                sync.pull_failed()
            terminal = self._keep_result(sync, result) or (result.ended and not result.failed)
            stop = terminal or not result.acted or not _only_waits(result)
            if stop or sync.is_terminating():
                break
        return SyncOutcome(
            terminal=terminal,
            error="" if terminal else result.error_message(),
            cause=None if terminal else result.cause(),
            waiting=not result.failed_actions,
            retry_at=result.retry_at,
            decisions=tuple(decisions),
        )

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Forget why the pod's containers did not start: it no longer matters."""
        self.reasons.forget(pod.uid)
        return None

    async def _round(self, sync: PodSync, reported: list[Decision]) -> PodSyncResult:
        early = _EarlyStatus(sync, self.cache, self.composer)

        def planned(decisions: Sequence[Decision]) -> None:
            reported.extend(decisions)
            self.decided(sync.pod.uid, decisions)

        try:
            return await self.sync_pod(
                SyncPodRequest(
                    pod=sync.pod,
                    status=sync.status,
                    probes=self.probes.results(sync.pod),
                    pull_secrets=sync.pull_secrets,
                    volume_mounts=sync.mounts,
                    # a static pod's status may be in a mirror that has not been seen yet
                    api_status=None
                    if sync.pod.is_static
                    else self.composer.reported(sync.pod, None),
                    on_sandbox_ready=early.sandbox_ready,
                    is_terminating=sync.is_terminating,
                    on_plan=planned,
                    reported=lambda: self.is_reported(sync.pod.uid),
                )
            )
        finally:
            early.cancel()

    def _keep_result(self, sync: PodSync, result: PodSyncResult) -> bool:
        """Keep what the runtime sync found out; returns whether the pod has run to its end."""
        uid = sync.pod.uid
        self.reasons.update(uid, result)
        if result.status is not None:
            self.cache.set(result.status, own=True)
        if result.sync_error is not None or (result.status is None and result.failed):
            # what was done may have had effects that the status does not show
            self.cache.invalidate(uid)
        resized = result.sync_error is None and self.resizes.synced(sync.pod, result.resize)
        changes = result.acted or result.failed or result.start_errors or resized
        if sync.is_terminating() or not changes:
            return False
        sync.status = self.cache.usable(uid) or result.status or sync.status
        return self.composer.store(sync.pod, sync.mirror, sync.status)


def _pull_failed(result: PodSyncResult) -> bool:
    """Whether an image was pulled without success (docs/reference/behaviour.md, u: ka53)."""
    return any(
        step.error is not None and step.error.code == ImageErrorCode.PULL for step in result.results
    )


def _only_waits(result: PodSyncResult) -> bool:
    """Whether the only failures are containers waiting out their backoff: the others may go on."""
    return result.sync_error is None and all(
        step.error is None or step.error.code == CRASH_LOOP for step in result.results
    )


class _EarlyStatus(Component):
    """Shows the pod's IPs early when its containers take long to start."""

    sync: PodSync
    cache: PodStatusCache
    composer: StatusComposer

    def __post_init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def sandbox_ready(self, status: PodRuntimeStatus) -> None:
        self.cache.set(status, own=True)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EARLY_STATUS_AFTER, self._store, status)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _store(self, status: PodRuntimeStatus) -> None:
        if not self.sync.is_terminating():
            self.composer.store(self.sync.pod, self.sync.mirror, status)


class NetworkGate(SyncStep):
    """Makes no sandbox while the runtime has no network, except for host-network pods."""

    name = Step.NETWORK

    # ``network_error``: why pods can't have a network now; empty when they can.
    network_error: Callable[[], str]
    recorder: EventRecorder

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """End the sync of a pod that needs the network while there is none."""
        error = self.network_error()
        if not error or sync.pod.host_network:
            return None
        message = f"network is not ready: {error}"
        self.recorder.event(pod_reference(sync.pod), WARNING, Reason.NETWORK_NOT_READY, message)
        return SyncOutcome(error=message, network_not_ready=True)


class Probes(SyncStep):
    """Starts and stops the probes of a pod."""

    name = Step.PROBES

    probes: KubeProbeManager

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Start the pod's probes; those already running go on."""
        self.probes.add_pod(sync.pod)
        return None

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Stop the pod's probes."""
        self.probes.remove_pod(pod.uid)
        return None


class MirrorPod(SyncStep):
    """Has a static pod's mirror created or replaced; its errors never stop the pod."""

    name = Step.MIRROR

    reconcile: Callable[[Pod, Pod | None], None]
    """Creates or replaces the mirror if needed. Never blocks: the pod needs no API to start."""

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Reconcile the mirror of a static pod."""
        if sync.pod.is_static:
            self.reconcile(sync.pod, sync.mirror)
        return None
