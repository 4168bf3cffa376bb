"""Keeps a node alive when it runs out of memory, disk or process IDs, and pods within their limits.

Observes, lets :mod:`.decide` choose, and carries it out: pods that exceed a limit of their own are
ended, and :mod:`.node_pressure` helps the node. Nothing here waits for a measurement, a reclaim or
a pod's end: observations continue meanwhile. Must cost nothing while there is nothing to watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, AnnotatingRecorder, pod_reference
from kubeletpy.node.eviction import decide
from kubeletpy.node.eviction.endings import Clear, Ending, Endings
from kubeletpy.node.eviction.node_pressure import REMEMBERED, NodePressure
from kubeletpy.node.eviction.ranking import LAYER_S, Awaited, NodeSignals, PodUses, Reclaim
from kubeletpy.node.eviction.report import EvictionOrder, PressureReport, report
from kubeletpy.node.eviction.signal_observer import LimitWatch, Meter, SignalObserver
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.podworkers.protocol import KillOptions

log = logging.getLogger(__name__)


class EvictionKeeper:
    """Run :meth:`run` as a task, and notify it of the pods that may run."""

    def __init__(
        self,
        rules: decide.Rules,
        signals: NodeSignals,
        uses: PodUses,
        meter: Meter | None,
        *,
        pods: Callable[[], Sequence[Pod]],
        pod: Callable[[str], Pod | None],
        kill: Callable[[Pod, KillOptions], Awaitable[None]],
        has_stopped: Callable[[str], bool],
        is_over: Callable[[str], bool],
        reclaim: Callable[[Reclaim], Awaitable[bool]],
        clear: Clear,
        changed: Callable[[], None],
        recorder: AnnotatingRecorder,
        clock: Clock,
        node_name: str,
        evicted: Callable[[str], None] = lambda signal: None,
        aged: Callable[[str, float], None] = lambda signal, seconds: None,
    ) -> None:
        """Make a keeper; nothing is measured before :meth:`run`.

        Args:
            meter: measures the local storage of pods that have limits; None: no pod is evicted for
                a limit of its own.
            pods: those that may run, with the resources allocated to them.
            pod: the newest object by uid; None when it was removed.
            kill: ends a pod and waits for it; raises TimeoutError when that takes long.
            has_stopped: whether everything of a pod (by uid) has stopped.
            is_over: whether it is also cleaned up.
            reclaim: removes what the node can do without; whether the runtime frees some of it
                only later.
            clear: removes what a pod that is over left in the runtime.
            changed: called when the conditions change.
            evicted, aged: count evictions, and seconds that numbers were old, by signal.
        """
        self._rules = rules
        self._signals = signals
        self._uses = uses
        self._pod = pod
        self._changed = changed
        self._recorder = recorder
        self._clock = clock
        self._evicted = evicted
        self._observer = SignalObserver(signals, rules)
        self._endings = Endings(
            self._observer, kill=kill, is_over=is_over, clear=clear, ended=signals.wake
        )
        self.pod_finished = self._endings.pod_finished
        self._limits: LimitWatch | None = None
        if meter is not None:
            self._limits = LimitWatch(
                meter,
                pod=pod,
                has_stopped=has_stopped,
                is_ending=self._endings.is_ending_for_limit,
                wake=signals.wake,
            )
        self._pressure = NodePressure(
            rules,
            signals,
            self._observer,
            uses,
            limits=self._limits,
            endings=self._endings,
            pods=pods,
            reclaim=reclaim,
            recorder=recorder,
            clock=clock,
            node_name=node_name,
            evicted=evicted,
            aged=aged,
        )
        self.done = self._pressure.done
        self.state = decide.EvictionState()
        self.done_for_limits: deque[decide.LimitEviction] = deque(maxlen=REMEMBERED)
        """Pods that were evicted for limits of their own, newest at the end."""
        self._restored = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of pressure that the node reports."""
        return tuple(each.value for each in self.state.conditions)

    def report(self) -> PressureReport:
        """The node's pressure and its evictions, for explain."""
        now = asyncio.get_running_loop().time()
        wall = self._clock.now()
        return report(self._rules, self.state, self._observer.doubts, self.done, now=now, wall=wall)

    async def order(
        self, requested: Pod | None = None, without: Collection[str] = ()
    ) -> tuple[EvictionOrder, ...]:
        """The order in which pods would be evicted now; measures what they use.

        Args:
            requested: a pod to include, with the resources that it would be allocated.
            without: uids of pods that would have ended by then.
        """
        return await self._pressure.order(self.state, requested, without)

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
            self._signals.wake()

    def pods_changed(self, uids: Collection[str]) -> None:
        """Set the pods that may run now; no others may. Never blocks."""
        self._endings.forget_others(uids)
        if self._limits is not None:
            self._limits.pods_changed(uids)

    async def run(self) -> None:
        """Observe and act until cancelled."""
        for name in self._rules.instead:
            log.warning(
                "a threshold has no effect: that of nodefs or imagefs holds for the file system",
                extra={"threshold": name},
            )
        self._pressure.begin()
        try:
            while True:
                wait: float | None = decide.PERIOD_S
                try:
                    wait = await self._round()
                except Exception:  # the boundary of a round: the next one comes anyway
                    log.exception("node pressure could not be measured")
                await self._signals.noticed(wait)
        finally:
            await self._endings.close()
            await self._pressure.close()

    async def close(self) -> None:
        """Close what signals, uses and local storage are measured with."""
        await self._signals.close()
        await self._uses.close()
        if self._limits is not None:
            await self._limits.close()

    async def _round(self) -> float | None:
        """Observe and act once; seconds until the next time, None: when a notification arrives."""
        seen = await self._observer.observe()
        now = asyncio.get_running_loop().time()
        before = self.state
        decision = decide.decide(
            seen.observations,
            self._rules,
            before,
            now,
            over=self._limits.over() if self._limits is not None else (),
            at_once=decide.AT_ONCE - len(self._endings.over_limits),
        )
        self.state = decision.state
        if decision.state.conditions != before.conditions:
            log.warning("pressure has changed", extra={"conditions": self.conditions})
            self._changed()
        self._observer.arm(seen.observations)
        self._end_offenders(decision)
        waits = [await self._pressure.act(decision)]
        if self._limits is not None:
            waits.append(self._limits.due(now))
        if self._rules.thresholds:
            waits.append(decide.observation_delay(seen.observations, before.last, self._rules))
        if decision.unsure:
            waits.append(decide.CONFIRM_S)
        if (held := decide.hold_ends(self.state, self._rules, now)) is not None:
            waits.append(max(held, decide.CONFIRM_S))
        return min((each for each in waits if each is not None), default=None)

    def excluded(self, uid: str) -> Excluded | None:
        """How a critical pod exceeds a limit of its own storage and stays; None: it does not."""
        return None if self._limits is None else self._limits.excluded(uid)

    def _end_offenders(self, decision: decide.EvictionDecision) -> None:
        if self._limits is None:
            return
        going = [(each, pod) for each in decision.over if (pod := self._pod(each.uid)) is not None]
        now = self._clock.now()
        self.done_for_limits += [
            self._limits.describe_eviction(pod, each, now) for each, pod in going
        ]
        for offender, pod in going:
            self._limits.goes(offender)
            self._end(offender, pod, decision.held)

    def _end(self, offender: decide.Offender, pod: Pod, held: Sequence[decide.Crossing]) -> None:
        verdict = offender.verdict
        log.warning("pod is evicted", extra={"pod": pod.key, "why": verdict.message.strip()})
        self._recorder.event(pod_reference(pod), WARNING, Reason.EVICTED, verdict.message)
        self._evicted(verdict.signal)
        options = KillOptions(
            grace_override=decide.GRACE_S,
            evict=True,
            status_override=partial(decide.evicted_status, verdict=verdict),
        )
        # what it leaves may be all that the node is short of
        awaited = Awaited(held[0].threshold, patience=LAYER_S) if held else None
        self._endings.begin(Ending(pod, None, options, awaited=awaited))
