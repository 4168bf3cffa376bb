"""Keeps a node alive when it runs out of memory, disk or process IDs, and pods within their limits.

Observes, lets :mod:`.decide` choose, and carries it out. Pods that exceed a limit of their own are
ended. A reclaim, or the eviction of one pod, frees what the node lacks. Two pods never end for
the same condition at a time, unless a hard threshold is crossed while a pod still has the grace
period of a soft one. Nothing here waits for a measurement, a reclaim or a pod's end: observations
continue meanwhile. Must cost nothing while there is nothing to watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, node_reference, pod_reference
from kubeletpy.node.eviction import decide, ranking, report
from kubeletpy.node.eviction.endings import Clear, Ending, Endings
from kubeletpy.node.eviction.report import REPORTED, EvictionOrder, EvictionRecord, PressureReport
from kubeletpy.node.eviction.signal_observer import LimitWatch, Meter, SignalObserver
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.podworkers.records import KillOptions

log = logging.getLogger(__name__)

HARD_GRACE_S = 1
COUNTED_AGAIN_S = 2.0
"""Between two rounds that wait until what pods use is counted."""
REMEMBERED = 32
"""How many evictions and reclaims are kept for explain."""


class EvictionKeeper(Component):
    """Run :meth:`run` as a task, and notify it of the pods that may run."""

    rules: decide.Rules
    signals: ranking.NodeSignals
    uses: ranking.PodUses
    meter: Meter | None
    """Measures the local storage of pods that have limits; None: no pod is evicted for a limit of
    its own."""
    pods: Callable[[], Sequence[Pod]]
    """Those that may run, with the resources allocated to them."""
    pod: Callable[[str], Pod | None]
    """The newest object by uid; None when it was removed."""
    kill: Callable[[Pod, KillOptions], Awaitable[None]]
    """Ends a pod and waits for it; raises TimeoutError when that takes long."""
    has_stopped: Callable[[str], bool]
    """Whether everything of a pod (by uid) has stopped."""
    is_over: Callable[[str], bool]
    """Whether it is also cleaned up."""
    reclaim: Callable[[ranking.Reclaim], Awaitable[bool]]
    """Removes what the node can do without; whether the runtime frees some of it only later."""
    clear: Clear
    """Removes what a pod that is over left in the runtime."""
    changed: Callable[[], None]
    """Called when the conditions change."""
    recorder: EventRecorder
    clock: Clock
    node_name: str
    evicted: Callable[[str], None] = lambda signal: None
    """Counts evictions by signal."""
    aged: Callable[[str, float], None] = lambda signal, seconds: None
    """Counts seconds that numbers were old, by signal."""

    def __post_init__(self) -> None:
        self._node = node_reference(self.node_name)
        self._observer = SignalObserver(self.signals, self.rules)
        self._endings = Endings(
            self._observer,
            kill=self.kill,
            is_over=self.is_over,
            clear=self.clear,
            ended=self.signals.wake,
        )
        self.pod_finished = self._endings.pod_finished
        self._limits: LimitWatch | None = None
        if self.meter is not None:
            self._limits = LimitWatch(
                self.meter,
                pod=self.pod,
                has_stopped=self.has_stopped,
                is_ending=self._endings.is_ending_for_limit,
                wake=self.signals.wake,
            )
        self.state = decide.EvictionState()
        self.done: deque[EvictionRecord] = deque(maxlen=REMEMBERED)
        """The last evictions and reclaims, newest at the end."""
        self.done_for_limits: deque[decide.LimitEviction] = deque(maxlen=REMEMBERED)
        """Pods that were evicted for limits of their own, newest at the end."""
        self._restored = False
        self._reclaiming: asyncio.Task[None] | None = None
        self._reclaimed = False
        """A reclaim is over: what is still crossed takes an eviction."""
        self._counts_wait = False
        """Nobody goes until what pods use is counted again, or old layers are removed."""
        self._began = 0.0
        """When the first round came, in event-loop seconds."""
        self._warned: set[tuple[str, decide.Threshold]] = set()
        """Why nothing is done, as it was logged."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of pressure that the node reports."""
        return tuple(each.value for each in self.state.conditions)

    def report(self) -> PressureReport:
        """The node's pressure and its evictions, for explain."""
        now = asyncio.get_running_loop().time()
        wall = self.clock.now()
        return report.report(
            self.rules, self.state, self._observer.doubts, self.done, now=now, wall=wall
        )

    async def order(
        self, requested: Pod | None = None, without: Collection[str] = ()
    ) -> tuple[EvictionOrder, ...]:
        """The order in which pods would be evicted now; measures what they use.

        Args:
            requested: a pod to include, with the resources that it would be allocated.
            without: uids of pods that would have ended by then.
        """
        watched = {threshold.signal for threshold in self.rules.thresholds}
        on_disk = bool(watched & decide.DISK)
        layout = await self.signals.layout() if on_disk else None
        pods = [pod for uid, pod in self._evictable().items() if uid not in without]
        uses = await self.uses.candidates(pods, disk=on_disk) if pods else []
        crossed = {threshold.signal for threshold in self.state.first_seen}
        desired = None
        if requested is not None:
            runs = next((each.use for each in uses if each.uid == requested.uid), None)
            desired = replace(ranking.candidate(requested, None, None), use=runs)
        return report.orders(watched, layout, uses, crossed, desired)

    def node_reported(self, node: api.Node) -> None:
        """Restore the last agent's conditions when the API first shows the node. Never blocks."""
        if self._restored:
            return
        self._restored = True
        conditions = (node.get("status") or {}).get("conditions") or ()
        reported = {each["type"] for each in conditions if each.get("status") == "True"}
        known = [each for each in decide.Condition if each.value in reported]
        if known:
            now = asyncio.get_running_loop().time()
            self.state = decide.restored(self.state, known, now)
            self.signals.wake()

    def pods_changed(self, uids: Collection[str]) -> None:
        """Set the pods that may run now; no others may. Never blocks."""
        self._endings.forget_others(uids)
        if self._limits is not None:
            self._limits.pods_changed(uids)

    async def run(self) -> None:
        """Observe and act until cancelled."""
        for name in self.rules.instead:
            log.warning(
                "a threshold has no effect: that of nodefs or imagefs holds for the file system",
                extra={"threshold": name},
            )
        self._began = asyncio.get_running_loop().time()
        try:
            while True:
                wait: float | None = decide.PERIOD_S
                try:
                    wait = await self._round()
                except Exception:  # the boundary of a round: the next one comes anyway
                    log.exception("node pressure could not be measured")
                await self.signals.noticed(wait)
        finally:
            await self._endings.close()
            await cancel_tasks((self._reclaiming,))  # it saves first what it has removed

    async def close(self) -> None:
        """Close what signals, uses and local storage are measured with."""
        await self.signals.close()
        await self.uses.close()
        if self._limits is not None:
            await self._limits.close()

    async def _round(self) -> float | None:
        """Observe and act once; seconds until the next time, None: when a notification arrives."""
        before = decide.relieved(self.state, self._observer.latest)
        seen = await self._observer.observe()
        now = asyncio.get_running_loop().time()
        decision = decide.decide(
            seen.observations,
            self.rules,
            before,
            now,
            over=self._limits.over() if self._limits is not None else (),
            at_once=decide.AT_ONCE - len(self._endings.over_limits),
        )
        self.state = decision.state
        if decision.state.conditions != before.conditions:
            log.warning("pressure has changed", extra={"conditions": self.conditions})
            self.changed()
        self._observer.arm(seen.observations)
        self._end_offenders(decision)
        waits = [await self._help_node(decision)]
        if self._limits is not None:
            waits.append(self._limits.due(now))
        if self.rules.thresholds:
            waits.append(decide.observation_delay(seen.observations, before.last, self.rules))
        if decision.unsure:
            waits.append(decide.CONFIRM_S)
        if (held := decide.hold_ends(self.state, self.rules, now)) is not None:
            waits.append(max(held, decide.CONFIRM_S))
        return min((each for each in waits if each is not None), default=None)

    def excluded(self, uid: str) -> Excluded | None:
        """How a critical pod exceeds a limit of its own storage and stays; None: it does not."""
        return None if self._limits is None else self._limits.excluded(uid)

    def _end_offenders(self, decision: decide.EvictionDecision) -> None:
        if self._limits is None:
            return
        going = [(each, pod) for each in decision.over if (pod := self.pod(each.uid)) is not None]
        now = self.clock.now()
        self.done_for_limits += [
            self._limits.describe_eviction(pod, each, now) for each, pod in going
        ]
        for offender, pod in going:
            self._limits.goes(offender)
            self._end(offender, pod, decision.held)

    def _end(self, offender: decide.Offender, pod: Pod, held: Sequence[decide.Crossing]) -> None:
        verdict = offender.verdict
        options = KillOptions(
            grace_override=decide.GRACE_S,
            evict=True,
            status_override=partial(decide.evicted_status, verdict=verdict),
        )
        # what it leaves may be all that the node is short of
        awaited = ranking.Awaited(held[0].threshold, patience=ranking.LAYER_S) if held else None
        self._begin(Ending(pod, None, options, awaited=awaited), verdict.signal, verdict.message)

    # -- the node's own thresholds --------------------------------------------------------------

    async def _help_node(self, decision: decide.EvictionDecision) -> float | None:
        """Reclaim, or evict a pod; seconds after which to try again, None: no need of that."""
        if not any(
            decide.condition_of(t.signal) is decide.Condition.DISK for t in decision.state.ready
        ):
            self._reclaimed = False
        self._counts_wait = False
        for crossing in (*decision.all, *decision.held):
            signal = crossing.threshold.signal
            self.aged(signal.value, asyncio.get_running_loop().time() - crossing.seen.at)
        if decision.act is None:
            if not decision.held:
                self._warned.clear()
            return None
        await self._act_on_first(decision)
        return COUNTED_AGAIN_S if self._counts_wait else None

    async def _act_on_first(self, decision: decide.EvictionDecision) -> None:
        for place, crossing in enumerate(decision.all):
            if not self._is_busy_with(crossing):
                same = [
                    each
                    for each in decision.all[place:]
                    if decide.resource_of(each.threshold.signal)
                    == decide.resource_of(crossing.threshold.signal)
                ]
                await self._act_on(crossing, same)
                if not self._counts_wait:
                    return

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def _limits_measured(self, crossing: decide.Crossing) -> bool:
        """Whether it is known, or not worth waiting for, who exceeds a limit of their own."""
        now = asyncio.get_running_loop().time()
        if self._limits is None or now - crossing.since >= ranking.LAYERS_S:
            return True
        return self._limits.measured_since(crossing.since, now)

    def _is_busy_with(self, crossing: decide.Crossing) -> bool:
        condition = decide.condition_of(crossing.threshold.signal)
        if condition is decide.Condition.DISK and self._reclaiming is not None:
            return True
        return self._endings.is_busy(condition, hard=crossing.threshold.hard)

    async def _act_on(self, crossing: decide.Crossing, same: Sequence[decide.Crossing]) -> None:
        signal = crossing.threshold.signal
        layout: decide.Layout | None = decide.Layout.ONE
        on_disk = decide.condition_of(signal) is decide.Condition.DISK
        if on_disk:
            layout = await self.signals.layout()
            if layout is None:
                self._warn(
                    "nothing can be done: the runtime does not report its file systems", crossing
                )
                return
        assert layout is not None, "known, or this is not about disks"
        text = report.reclaiming(decide.resource_of(signal))
        what = ranking.reclaims(signal, layout)
        if what and not self._reclaimed:
            self.recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
            self._reclaiming = asyncio.create_task(self._clear_away(crossing, what), name="reclaim")
            return
        if not what:
            self.recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
        if on_disk and (
            ranking.may_be_settling(self._age()) or not self._limits_measured(crossing)
        ):
            self._counts_wait = True
            return
        active = self._evictable()
        if not active:
            self._warn("the node runs short, and there is no pod to evict", crossing)
            return
        uses = await self.uses.candidates(list(active.values()), disk=on_disk)
        ranked = ranking.rank(uses, signal, layout)
        chosen = ranking.first_to_go(ranked)
        if chosen is None:
            self._warn("the node runs short, and only critical pods run", crossing)
            return
        crossed_for = asyncio.get_running_loop().time() - crossing.since
        written = self._observer.most_left(signal) - crossing.seen.available
        if on_disk and crossed_for < ranking.LAYERS_S:
            self._counts_wait = ranking.is_premature(
                chosen, uses, signal, layout, grown=written, crossed=self.clock.now() - crossed_for
            )
            if self._counts_wait:
                return
        self._reclaimed = self._reclaimed and not what
        self.done.append(
            EvictionRecord(self.clock.now(), crossing, tuple(ranked[:REPORTED]), chosen)
        )
        awaited = ranking.freed_by(chosen, crossing.threshold, layout, written) if on_disk else None
        self._evict(active[chosen.pod.uid], chosen.pod, crossing, same, awaited)

    def _evictable(self) -> dict[str, Pod]:
        """The pods to be ranked, by uid: those that did not end in time are left out."""
        active = {pod.uid: pod for pod in self.pods()}
        stuck = self._endings.stuck(active)
        return {uid: pod for uid, pod in active.items() if uid not in stuck}

    async def _clear_away(
        self, crossing: decide.Crossing, what: tuple[ranking.Reclaim, ...]
    ) -> None:
        """Reclaim, then check whether that was enough."""
        well = freed_later = False
        try:
            before = await self._observer.left(crossing.threshold.signal)
            for each in what:
                try:
                    freed_later = await self.reclaim(each) or freed_later
                except Exception:  # the boundary of one kind of garbage: the other, and pods, go on
                    log.exception("node resources could not be reclaimed", extra={"of": each.value})
            if freed_later:
                freed = ranking.freed_by_reclaim(crossing.threshold, self._age())
                await self._observer.settled(freed, before)
            seen = await self._observer.observe()
            well = decide.is_well(seen.observations, self.rules, crossing.threshold.signal)
            self.done.append(
                EvictionRecord(self.clock.now(), crossing, reclaimed=what, helped=well)
            )
        finally:
            self._reclaimed = not well
            self._reclaiming = None
            self.signals.wake()

    def _evict(
        self,
        pod: Pod,
        candidate: ranking.Candidate,
        crossing: decide.Crossing,
        same: Sequence[decide.Crossing],
        awaited: ranking.Awaited | None,
    ) -> None:
        signal, hard = crossing.threshold.signal, crossing.threshold.hard
        text = report.message(candidate, same)
        status = partial(
            report.evicted_status, text=text, now=self.clock.now(), generation=pod.generation
        )
        grace = HARD_GRACE_S
        if not hard:
            grace = max(grace, min(self.rules.max_grace, pod.termination_grace_period))
        options = KillOptions(grace_override=grace, evict=True, status_override=status)
        ending = Ending(pod, decide.condition_of(signal), options, hard, awaited)
        self._warned.clear()
        self._begin(ending, signal.value, text, report.event_annotations(candidate, crossing))

    def _begin(
        self, ending: Ending, signal: str, text: str, notes: Mapping[str, str] | None = None
    ) -> None:
        pod = ending.pod
        log.warning("pod is evicted", extra={"pod": pod.key, "why": text.strip()})
        reference = pod_reference(pod)
        self.recorder.event(reference, WARNING, Reason.EVICTED, text, annotations=notes)
        self.evicted(signal)
        self._endings.begin(ending)

    def _warn(self, what: str, crossing: decide.Crossing) -> None:
        """Log once why no pod is evicted, until one is or the pressure ends."""
        warning = what, crossing.threshold
        if warning not in self._warned:
            self._warned.add(warning)
            about = {
                "signal": crossing.threshold.signal.value,
                "threshold": crossing.quantity,
                "available": crossing.seen.available,
            }
            log.warning(what, extra=about)
