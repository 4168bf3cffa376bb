"""Does what crossed thresholds call for: reclaims what the node can do without, or evicts one pod.

Must never have two pods end for the same condition at a time. A hard threshold that is crossed
while a pod still has the grace period of a soft one is the exception. Must never wait for a reclaim
or for a pod's end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import (
    WARNING,
    AnnotatingRecorder,
    node_reference,
    pod_reference,
)
from kubeletpy.node.eviction import decide, report
from kubeletpy.node.eviction import ranking as eviction_ranking
from kubeletpy.node.eviction.endings import Ending, Endings
from kubeletpy.node.eviction.report import REPORTED, EvictionOrder, EvictionRecord
from kubeletpy.node.eviction.signal_observer import LimitWatch, SignalObserver
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import KillOptions

log = logging.getLogger(__name__)

HARD_GRACE_S = 1
COUNTED_AGAIN_S = 2.0
"""Between two rounds that wait until what pods use is counted."""
REMEMBERED = 32
"""How many evictions and reclaims are kept for explain."""


class NodePressure:
    """Call :meth:`begin` once and :meth:`act` in each round."""

    def __init__(
        self,
        rules: decide.Rules,
        signals: eviction_ranking.NodeSignals,
        observer: SignalObserver,
        uses: eviction_ranking.PodUses,
        *,
        limits: LimitWatch | None,
        endings: Endings,
        pods: Callable[[], Sequence[Pod]],
        reclaim: Callable[[eviction_ranking.Reclaim], Awaitable[bool]],
        recorder: AnnotatingRecorder,
        clock: Clock,
        node_name: str,
        evicted: Callable[[str], None],
        aged: Callable[[str, float], None],
    ) -> None:
        """Make it as :class:`kubeletpy.node.eviction.keeper.EvictionKeeper`, with its own parts."""
        self._rules = rules
        self._signals = signals
        self._observer = observer
        self._uses = uses
        self._limits = limits
        self._endings = endings
        self._pods = pods
        self._reclaim = reclaim
        self._recorder = recorder
        self._clock = clock
        self._node = node_reference(node_name)
        self._evicted = evicted
        self._aged = aged
        self.done: deque[EvictionRecord] = deque(maxlen=REMEMBERED)
        """The last evictions and reclaims, newest at the end."""
        self._reclaiming: asyncio.Task[None] | None = None
        self._reclaimed = False
        """A reclaim is over: what is still crossed takes an eviction."""
        self._counts_wait = False
        """Nobody goes until what pods use is counted again, or old layers are removed."""
        self._began = 0.0
        """Event-loop seconds."""
        self._warned: set[tuple[str, decide.Threshold]] = set()
        """Why nothing is done, as it was logged."""

    def begin(self) -> None:
        """The first round comes now."""
        self._began = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Stop a reclaim; it saves first what it has removed."""
        await cancel_tasks((self._reclaiming,))

    async def act(self, decision: decide.EvictionDecision) -> float | None:
        """Do it; seconds after which a round is to try again, None: no need of one."""
        if not any(
            decide.condition_of(t.signal) is decide.Condition.DISK for t in decision.state.ready
        ):
            self._reclaimed = False
        self._counts_wait = False
        for crossing in (*decision.all, *decision.held):
            signal = crossing.threshold.signal
            self._aged(signal.value, asyncio.get_running_loop().time() - crossing.seen.at)
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
        if self._limits is None or now - crossing.since >= eviction_ranking.LAYERS_S:
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
            layout = await self._signals.layout()
            if layout is None:
                self._warn(
                    "nothing can be done: the runtime does not report its file systems", crossing
                )
                return
        assert layout is not None, "known, or this is not about disks"
        text = report.reclaiming(decide.resource_of(signal))
        what = eviction_ranking.reclaims(signal, layout)
        if what and not self._reclaimed:
            self._recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
            self._reclaiming = asyncio.create_task(self._clear_away(crossing, what), name="reclaim")
            return
        if not what:
            self._recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
        if on_disk and (
            eviction_ranking.may_be_settling(self._age()) or not self._limits_measured(crossing)
        ):
            self._counts_wait = True
            return
        active = self._evictable()
        if not active:
            self._warn("the node runs short, and there is no pod to evict", crossing)
            return
        uses = await self._uses.candidates(list(active.values()), disk=on_disk)
        ranking = eviction_ranking.rank(uses, signal, layout)
        chosen = eviction_ranking.first_to_go(ranking)
        if chosen is None:
            self._warn("the node runs short, and only critical pods run", crossing)
            return
        crossed_for = asyncio.get_running_loop().time() - crossing.since
        written = self._observer.most_left(signal) - crossing.seen.available
        if on_disk and crossed_for < eviction_ranking.LAYERS_S:
            self._counts_wait = eviction_ranking.is_premature(
                chosen,
                uses,
                signal,
                layout,
                grown=written,
                crossed=self._clock.now() - crossed_for,
            )
            if self._counts_wait:
                return
        self._reclaimed = self._reclaimed and not what
        self.done.append(
            EvictionRecord(self._clock.now(), crossing, tuple(ranking[:REPORTED]), chosen)
        )
        awaited = (
            eviction_ranking.freed_by(chosen, crossing.threshold, layout, written)
            if on_disk
            else None
        )
        self._evict(active[chosen.pod.uid], chosen.pod, crossing, same, awaited)

    def _evictable(self) -> dict[str, Pod]:
        """The pods to be ranked, by uid: those that did not end in time are left out."""
        active = {pod.uid: pod for pod in self._pods()}
        stuck = self._endings.stuck(active)
        return {uid: pod for uid, pod in active.items() if uid not in stuck}

    async def order(
        self, state: decide.EvictionState, requested: Pod | None, without: Collection[str]
    ) -> tuple[EvictionOrder, ...]:
        """The result of :meth:`kubeletpy.node.eviction.keeper.EvictionKeeper.order`."""
        watched = {threshold.signal for threshold in self._rules.thresholds}
        on_disk = bool(watched & decide.DISK)
        layout = await self._signals.layout() if on_disk else None
        pods = [pod for uid, pod in self._evictable().items() if uid not in without]
        uses = await self._uses.candidates(pods, disk=on_disk) if pods else []
        crossed = {threshold.signal for threshold in state.first_seen}
        desired = None
        if requested is not None:
            runs = next((each.use for each in uses if each.uid == requested.uid), None)
            desired = replace(eviction_ranking.candidate(requested, None, None), use=runs)
        return report.orders(watched, layout, uses, crossed, desired)

    async def _clear_away(
        self, crossing: decide.Crossing, what: tuple[eviction_ranking.Reclaim, ...]
    ) -> None:
        """Reclaim, then check whether that was enough."""
        well = freed_later = False
        try:
            before = await self._observer.left(crossing.threshold.signal)
            for each in what:
                try:
                    freed_later = await self._reclaim(each) or freed_later
                except Exception:  # the boundary of one kind of garbage: the other, and pods, go on
                    log.exception("node resources could not be reclaimed", extra={"of": each.value})
            if freed_later:
                freed = eviction_ranking.freed_by_reclaim(crossing.threshold, self._age())
                await self._observer.settled(freed, before)
            seen = await self._observer.observe()
            well = decide.is_well(seen.observations, self._rules, crossing.threshold.signal)
            self.done.append(
                EvictionRecord(self._clock.now(), crossing, reclaimed=what, helped=well)
            )
        finally:
            self._reclaimed = not well
            self._reclaiming = None
            self._signals.wake()

    def _evict(
        self,
        pod: Pod,
        candidate: eviction_ranking.Candidate,
        crossing: decide.Crossing,
        same: Sequence[decide.Crossing],
        awaited: eviction_ranking.Awaited | None,
    ) -> None:
        signal, hard = crossing.threshold.signal, crossing.threshold.hard
        text = report.message(candidate, same)
        status = partial(
            report.evicted_status,
            text=text,
            now=self._clock.now(),
            generation=pod.generation,
        )
        grace = HARD_GRACE_S
        if not hard:
            grace = max(grace, min(self._rules.max_grace, pod.termination_grace_period))
        options = KillOptions(grace_override=grace, evict=True, status_override=status)
        log.warning("pod is evicted", extra={"pod": pod.key, "why": text.strip()})
        self._recorder.event(
            pod_reference(pod),
            WARNING,
            Reason.EVICTED,
            text,
            annotations=report.event_annotations(candidate, crossing),
        )
        self._warned.clear()
        self._evicted(signal.value)
        self._endings.begin(Ending(pod, decide.condition_of(signal), options, hard, awaited))

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
