"""The last step of a sync: the runtime sync, and what is made known of it.

Must never decide what the runtime is to do: that is :mod:`kubeletpy.runtime_manager`.
"""

from __future__ import annotations

import asyncio

from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.reason_cache import CRASH_LOOP
from kubeletpy.podworkers.sync_context import SyncContext
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from kubeletpy.runtime_manager.results import Decision, PodSyncResult

MAX_ROUNDS = 20
"""Runtime syncs in one step: more than any pod has stages, yet not without end."""
EARLY_STATUS_AFTER = 1.0
"""Seconds after the sandbox is there until its IPs are shown although containers still start: most
pods are Running by then, also in a burst, and are spared a write (with 0.25 s a burst of 20 wrote
2.9 times a pod, with 1 s 2.0 times)."""


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
