"""Measures a node for its keeper: recent plausible observations, and pods that exceed a limit.

Must never end a pod: :mod:`.decide` states which is to be evicted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.node.eviction import decide
from kubeletpy.node.eviction.ranking import (
    LAYERS_S,
    Awaited,
    NodeSignals,
    begun,
    is_settled,
    observed,
)
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.pods.resources import is_critical

log = logging.getLogger(__name__)

OBSERVATIONS = 32
"""How many observations are kept: more than fit into LAYERS_S and a period, at one a second."""
SETTLE_CHECK_S = 0.2
"""Between two checks whether what is to be freed has been."""


class SignalObserver(Component):
    """Observes the signals of a node and keeps recent observations."""

    signals: NodeSignals
    rules: decide.Rules

    def __post_init__(self) -> None:
        self.doubts: Mapping[decide.Signal, decide.Doubt] = {}
        """Those of the last observation."""
        self.latest: decide.Observations = {}
        """The last observation, also of what an eviction or a reclaim frees."""
        self._left: deque[tuple[float, decide.Observations]] = deque(maxlen=OBSERVATIONS)
        """Observations of the last seconds, at most one a second."""

    async def observe(self) -> decide.CheckedObservations:
        """Observe what is available now."""
        found = await self.signals.observe(self.rules.signals)
        now = asyncio.get_running_loop().time()
        seen = decide.believable(found, now)
        if seen.doubts and seen.doubts != self.doubts:
            why = {signal.value: doubt.value for signal, doubt in seen.doubts.items()}
            log.warning("implausible measurements of the node are ignored", extra={"why": why})
        self.doubts, self.latest = seen.doubts, seen.observations
        if not self._left or now - self._left[-1][0] >= 1:
            self._left.append((now, seen.observations))
        return seen

    async def left(self, signal: decide.Signal) -> decide.SignalObservation | None:
        """Observe what is available for one signal now."""
        return (await self.observe()).observations.get(signal)

    def most_left(self, signal: decide.Signal) -> int:
        """The most that was available since the layers may have been counted."""
        since = asyncio.get_running_loop().time() - LAYERS_S - decide.PERIOD_S
        seen = (found for at, found in self._left if at >= since)
        return max((found[signal].available for found in seen if signal in found), default=0)

    def arm(self, seen: decide.Observations) -> None:
        """Be woken when a memory threshold is reached."""
        margins: dict[decide.Signal, int] = {}
        for threshold in self.rules.thresholds:
            at = seen.get(threshold.signal)
            if threshold.signal in decide.MEMORY and at is not None:
                left = at.available - threshold.amount.in_units(at.capacity)
                if left > 0:
                    margins[threshold.signal] = min(left, margins.get(threshold.signal, left))
        self.signals.arm(margins)

    async def settled(self, awaited: Awaited, before: decide.SignalObservation | None) -> None:
        """Wait until what is to be freed has been, or is no longer worth waiting for.

        ``before``: what was available before any of it could be freed.
        """
        loop = asyncio.get_running_loop()
        settling = None if before is None else begun(awaited, before, loop.time())
        while True:
            seen = await self.left(awaited.signal)
            if seen is not None:
                now = loop.time()
                settling = observed(settling or begun(awaited, seen, now), seen, now)
                if is_settled(settling, seen.capacity, now):
                    return
            await asyncio.sleep(SETTLE_CHECK_S)


class Meter(Protocol):
    """Measures how much of the disk pods use."""

    async def measure(self, desired: Mapping[str, bool]) -> Mapping[str, PodStorage]:
        """Uid -> use, as far as it is known; ``desired``: uid -> whether writable layers count."""

    async def close(self) -> None:
        """End a measurement that is under way."""


class LimitWatch(Component):
    """Measures the local storage of pods that have limits, and keeps which exceed one.

    Notify it of the pods that may run; call :meth:`due` in each round. Costs nothing while no
    running pod has such a limit.
    """

    meter: Meter
    pod: Callable[[str], Pod | None]
    """The newest object by uid; None when it was removed."""
    has_stopped: Callable[[str], bool]
    """Whether everything of a pod (by uid) has stopped."""
    is_ending: Callable[[str], bool]
    """Whether a pod (by uid) is being ended for a limit of its own already."""
    wake: Callable[[], None]
    """Called when a round has something new to decide on."""

    def __post_init__(self) -> None:
        self._known: dict[str, decide.LocalStorageLimits | None] = {}
        """Limits of the pods that may run; they never change."""
        self._uses: Mapping[str, PodStorage] = {}
        """The last measurement."""
        self._offenders: list[decide.Offender] = []
        """The pods to evict, by that measurement."""
        self._excluded: dict[str, Excluded] = {}
        """Critical pods that exceed a limit, by that measurement."""
        self._measured_at = float("-inf")
        """When the last measurement began, event-loop seconds."""
        self._due_at: float | None = None
        self._measuring: asyncio.Task[None] | None = None

    def pods_changed(self, uids: Iterable[str]) -> None:
        """Set the pods that may run now; no others may. Never blocks."""
        found: dict[str, decide.LocalStorageLimits | None] = {}
        for uid in uids:
            if uid in self._known:
                found[uid] = self._known[uid]
            elif (pod := self.pod(uid)) is not None:
                found[uid] = decide.limits_of(pod)
        self._known = found
        if not any(found.values()):
            self._due_at = None
        elif self._due_at is None:
            self._due_at = asyncio.get_running_loop().time() + decide.PERIOD_S
            self.wake()

    def due(self, now: float) -> float | None:
        """Begin a measurement if it is time for one; seconds until the next, None: none will be.

        Never blocks: ``wake`` is called when it is over.
        """
        if self._due_at is None or self._measuring is not None:
            return None
        if now >= self._due_at:
            self._begin(now)
            return None
        return self._due_at - now

    def measured_since(self, at: float, now: float) -> bool:
        """Whether what pods use was measured later than that; otherwise begin to. Never blocks."""
        if self._measured_at >= at and self._measuring is None:
            return True
        if self._measuring is None:
            if all(map(self._is_critical, self._watched())):
                return True
            self._begin(now)
        return False

    def over(self) -> list[decide.Offender]:
        """The pods that exceed a limit and are not ending yet, by the last measurement."""
        if not self._offenders:
            return []
        watched = self._watched()
        return [each for each in self._offenders if each.uid in watched]

    def excluded(self, uid: str) -> Excluded | None:
        """How a critical pod exceeds a limit of its own: it is not evicted for it."""
        return self._excluded.get(uid) if uid in self._watched() else None

    def goes(self, offender: decide.Offender) -> None:
        """Note that it is being ended: only another measurement can blame it again."""
        self._offenders.remove(offender)

    def describe_eviction(
        self, pod: Pod, offender: decide.Offender, at: float
    ) -> decide.LimitEviction:
        """The record of an eviction at that time (Unix seconds): make it before the pod ends."""
        watched, offenders = self._watched(), {each.uid for each in self._offenders}
        others = (
            _place(other, decide.nearest(watched[uid], use))
            for uid, use in self._uses.items()
            if uid in watched
            and uid not in offenders
            and (other := self.pod(uid)) is not None
            and not is_critical(other)
        )
        return decide.LimitEviction(
            at, _place(pod, offender.verdict.share), decide.next_to_go(others)
        )

    async def close(self) -> None:
        """End a measurement that is under way, and close the meter."""
        await cancel_tasks((self._measuring,))
        await self.meter.close()

    def _is_critical(self, uid: str) -> bool:
        pod = self.pod(uid)
        return pod is not None and is_critical(pod)

    def _exclude(self, over: Iterable[decide.Offender]) -> None:
        """Keep which critical pods exceed a limit since when; each is logged once."""
        before, self._excluded = self._excluded, {}
        for each in over:
            known = before.get(each.uid)
            since = self._measured_at if known is None else known.since
            share = each.verdict.share
            self._excluded[each.uid] = Excluded(share.of, share.used, share.limit, since)
            if known is None and (pod := self.pod(each.uid)) is not None:
                log.warning(
                    "a critical pod exceeds a limit of its local storage and is not evicted",
                    extra={"pod": pod.key, "why": each.verdict.message.strip()},
                )

    def _watched(self) -> dict[str, decide.LocalStorageLimits]:
        return {
            uid: limits
            for uid, limits in self._known.items()
            if limits is not None
            and self.pod(uid) is not None
            and not self.is_ending(uid)
            and not self.has_stopped(uid)
        }

    def _begin(self, now: float) -> None:
        self._measured_at = now
        self._measuring = asyncio.create_task(self._measure(), name="measure-local-storage")

    async def _measure(self) -> None:
        self._offenders = []
        watched = self._watched()
        try:
            desired = {uid: limits.of_layers for uid, limits in watched.items()}
            self._uses = await self.meter.measure(desired) if desired else {}
            over = [
                decide.Offender(uid, verdict)
                for uid, use in self._uses.items()
                if (verdict := decide.judge(watched[uid], use)) is not None
            ]
            self._offenders = [each for each in over if not self._is_critical(each.uid)]
            self._exclude([each for each in over if self._is_critical(each.uid)])
        except Exception:  # the boundary of a measurement: the next one comes anyway
            log.exception("local storage could not be measured")
        finally:
            self._measuring = None
            if self._due_at is not None:
                self._due_at = asyncio.get_running_loop().time() + decide.PERIOD_S
            self.wake()


def _place(pod: Pod, share: decide.Share) -> decide.LimitPlace:
    return decide.LimitPlace(pod.namespace, pod.name, pod.uid, share)
