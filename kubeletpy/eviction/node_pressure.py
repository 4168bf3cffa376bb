"""Keeps a node alive that runs out of memory, disk or process numbers.

Looks, has :mod:`.decide` say what follows, and does it: what the node can clear away itself goes
first, then one pod. Nothing here waits for a reclaim or for a pod's end: looks go on meanwhile.
Must never have two pods end for the same condition at a time, but for a hard threshold that is
crossed while a pod still has the grace of a soft one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import (
    WARNING,
    AnnotatingRecorder,
    node_reference,
    pod_reference,
)
from kubeletpy.eviction import words
from kubeletpy.eviction.decide import (
    Crossing,
    Decision,
    State,
    decide,
    hold_ends,
    is_well,
    restored,
)
from kubeletpy.eviction.next_look import CONFIRM_S, PERIOD_S, next_look
from kubeletpy.eviction.pod_use import Candidate
from kubeletpy.eviction.ranking import Reclaim, first_to_go, is_premature, rank, reclaims
from kubeletpy.eviction.report import SHOWN, Done, PressureReport, report
from kubeletpy.eviction.signals import (
    MEMORY,
    Condition,
    Doubt,
    Layout,
    Observations,
    Seen,
    Signal,
    believable,
    condition_of,
    resource_of,
)
from kubeletpy.eviction.thresholds import Rules, Threshold
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import KillOptions

log = logging.getLogger(__name__)

HARD_GRACE_S = 1
CLEANUP_S = 30.0
"""How long an evicted pod's end, volumes included, is waited for.

Source: docs/reference/constants.csv: pod cleanup wait.
"""
CLEAR_AGAIN_S = 1.0
"""Between two tries to remove what an evicted pod has left."""
LAYERS_S = 12.0
"""How long after a crossing the runtime may take to count writable layers again.

containerd does so every 10 s by default, and the count itself takes a while.
"""
LOOKS = 32
"""Looks that are remembered: more than come in LAYERS_S and a period, one a second."""
LAYERS_AGAIN_S = 2.0
"""Between two looks whether it has."""
REMEMBERED = 32
"""Evictions and reclaims that are kept for explain."""


class NodeSignals(Protocol):
    """What a node has left."""

    async def look(self, wanted: Collection[Signal]) -> Observations:
        """What there is of each signal that can be observed."""
        ...

    async def layout(self) -> Layout | None:
        """Where images and writable layers are; None: not known yet."""
        ...

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Have :meth:`noticed` return when so many bytes more are used."""
        ...

    async def noticed(self, within: float) -> None:
        """Wait for a notice, at most so many seconds."""
        ...

    def wake(self) -> None:
        """Have :meth:`noticed` return."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class PodUses(Protocol):
    """What pods use, as of now."""

    async def of(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Each pod with what it uses; ``disk``: of the disk too."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


@dataclass(frozen=True, slots=True)
class _Ending:
    hard: bool
    task: asyncio.Task[None]


class NodePressureKeeper:
    """Run :meth:`run` as a task."""

    def __init__(
        self,
        rules: Rules,
        signals: NodeSignals,
        uses: PodUses,
        *,
        pods: Callable[[], Sequence[Pod]],
        kill: Callable[[Pod, KillOptions], Awaitable[None]],
        is_over: Callable[[str], bool],
        reclaim: Callable[[Reclaim], Awaitable[None]],
        cleared: Callable[[str], Awaitable[bool]],
        changed: Callable[[], None],
        recorder: AnnotatingRecorder,
        clock: Clock,
        node_name: str,
        evicted: Callable[[str], None] = lambda signal: None,
        aged: Callable[[str, float], None] = lambda signal, seconds: None,
        others_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """Args:
        pods: those that may run, with the resources they were given.
        kill: ends a pod and waits for it; raises TimeoutError when that takes long.
        is_over: whether everything of a pod (by uid) has stopped and is cleaned up.
        reclaim: clears away what the node can do without.
        cleared: removes what a pod (by uid) that is over has left in the runtime; whether nothing
            is left.
        changed: called when other conditions hold.
        evicted, aged: count evictions, and seconds that numbers were old, by signal.
        others_end: whether pods are ending for limits of local storage.
        """
        self._rules = rules
        self._signals = signals
        self._uses = uses
        self._pods = pods
        self._kill = kill
        self._is_over = is_over
        self._reclaim = reclaim
        self._cleared = cleared
        self._changed = changed
        self._recorder = recorder
        self._clock = clock
        self._node = node_reference(node_name)
        self._evicted = evicted
        self._aged = aged
        self._others_end = others_end
        self.state = State()
        self.doubts: Mapping[Signal, Doubt] = {}
        self.done: deque[Done] = deque(maxlen=REMEMBERED)
        """What was done last, newest at the end."""
        self._ending: dict[Condition, _Ending] = {}
        self._stuck: set[str] = set()
        """Pods that did not end in time: others go first, should the node need more."""
        self._reclaiming: asyncio.Task[None] | None = None
        self._reclaimed = False
        """A reclaim is over: what is still crossed is a matter of pods."""
        self._left: deque[tuple[float, Observations]] = deque(maxlen=LOOKS)
        """What looks of the last seconds saw, at most one a second."""
        self._layers_wait = False
        """Nobody goes until the runtime has counted the writable layers."""
        self._restored = False
        self._said: set[tuple[str, Threshold]] = set()
        """Why nothing is done, as it was logged."""
        self._finished: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of pressure that the node reports."""
        return tuple(each.value for each in self.state.conditions)

    def report(self) -> PressureReport:
        """What is known of the node's pressure, for explain."""
        now = asyncio.get_running_loop().time()
        wall = self._clock.now()
        return report(self._rules, self.state, self.doubts, self.done, now=now, wall=wall)

    def node_shown(self, node: api.Node) -> None:
        """The API has shown the node: the first time, as the last agent left it. Never blocks."""
        if self._restored:
            return
        self._restored = True
        conditions = (node.get("status") or {}).get("conditions") or ()
        told = {each["type"] for each in conditions if each.get("status") == "True"}
        shown = [each for each in Condition if each.value in told]
        if shown:
            now = asyncio.get_running_loop().time()
            self.state = restored(self.state, shown, now)
            self._signals.wake()

    def pod_finished(self, uid: str) -> None:
        """Everything of a pod is gone. Never blocks."""
        if uid in self._finished:
            self._finished[uid].set()

    async def run(self) -> None:
        """Look and act until cancelled."""
        for name in self._rules.instead:
            log.warning(
                "a threshold has no effect: that of nodefs or imagefs holds for the file system",
                extra={"threshold": name},
            )
        try:
            while True:
                try:
                    wait = await self._round()
                except Exception:  # the boundary of a round: the next one comes all the same
                    log.exception("the node's pressure could not be looked at")
                    wait = PERIOD_S
                await self._signals.noticed(wait)
        finally:
            for task in self._tasks:
                task.cancel()

    async def close(self) -> None:
        """Stop reading."""
        await self._signals.close()
        await self._uses.close()

    async def _round(self) -> float:
        """One look and what follows; seconds until the next."""
        seen = await self._look()
        now = asyncio.get_running_loop().time()
        before = self.state
        decision = decide(seen.observations, self._rules, before, now)
        self.state = decision.state
        if decision.state.conditions != before.conditions:
            log.warning("pressure has changed", extra={"conditions": self.conditions})
            self._changed()
        self._arm(seen.observations)
        if not any(condition_of(c.threshold.signal) is Condition.DISK for c in decision.all):
            self._reclaimed = False
        self._layers_wait = False
        if decision.act is not None:
            await self._act(decision)
        else:
            self._said.clear()
        waits = [next_look(seen.observations, before.last, self._rules)]
        if decision.unsure:
            waits.append(CONFIRM_S)
        if self._layers_wait:
            waits.append(LAYERS_AGAIN_S)
        if (held := hold_ends(self.state, self._rules, now)) is not None:
            waits.append(max(held, CONFIRM_S))
        return min(waits)

    async def _look(self) -> Seen:
        found = await self._signals.look(self._rules.signals)
        seen = believable(found, asyncio.get_running_loop().time())
        if seen.doubts and seen.doubts != self.doubts:
            why = {signal.value: doubt.value for signal, doubt in seen.doubts.items()}
            log.warning("numbers of the node are not believed", extra={"why": why})
        self.doubts = seen.doubts
        now = asyncio.get_running_loop().time()
        if not self._left or now - self._left[-1][0] >= 1:
            self._left.append((now, seen.observations))
        return seen

    def _most_left(self, signal: Signal) -> int:
        """The most that there was since the layers may have been counted."""
        since = asyncio.get_running_loop().time() - LAYERS_S - PERIOD_S
        seen = (observed for at, observed in self._left if at >= since)
        return max((found[signal].available for found in seen if signal in found), default=0)

    def _arm(self, seen: Observations) -> None:
        margins: dict[Signal, int] = {}
        for threshold in self._rules.thresholds:
            at = seen.get(threshold.signal)
            if threshold.signal in MEMORY and at is not None:
                left = at.available - threshold.amount.of(at.capacity)
                if left > 0:
                    margins[threshold.signal] = min(left, margins.get(threshold.signal, left))
        self._signals.arm(margins)

    async def _act(self, decision: Decision) -> None:
        for crossing in decision.all:
            signal = crossing.threshold.signal
            self._aged(signal.value, asyncio.get_running_loop().time() - crossing.seen.at)
        for place, crossing in enumerate(decision.all):
            if not self._is_busy_with(crossing):
                same = [
                    each
                    for each in decision.all[place:]
                    if resource_of(each.threshold.signal) == resource_of(crossing.threshold.signal)
                ]
                await self._act_on(crossing, same)
                if not self._layers_wait:
                    return

    def _is_busy_with(self, crossing: Crossing) -> bool:
        condition = condition_of(crossing.threshold.signal)
        if condition is Condition.DISK and (self._reclaiming is not None or self._others_end()):
            return True
        ending = self._ending.get(condition)
        return ending is not None and (ending.hard or not crossing.threshold.hard)

    async def _act_on(self, crossing: Crossing, same: Sequence[Crossing]) -> None:
        signal = crossing.threshold.signal
        layout: Layout | None = Layout.ONE
        on_disk = condition_of(signal) is Condition.DISK
        if on_disk:
            layout = await self._signals.layout()
            if layout is None:
                self._warn(
                    "nothing can be done: the runtime does not report its file systems", crossing
                )
                return
        assert layout is not None, "known, or this is not about disks"
        text = words.reclaiming(resource_of(signal))
        what = reclaims(signal, layout)
        if what and not self._reclaimed:
            self._recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
            task = asyncio.create_task(self._clear_away(crossing, what), name="reclaim")
            self._reclaiming = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if not what:
            self._recorder.event(self._node, WARNING, Reason.EVICTION_THRESHOLD_MET, text)
        active = {pod.uid: pod for pod in self._pods()}
        self._stuck &= set(active)
        candidates = [uid for uid in active if uid not in self._stuck]
        if not candidates:
            self._warn("the node runs short, and there is no pod to evict", crossing)
            return
        uses = await self._uses.of([active[uid] for uid in candidates], disk=on_disk)
        ranking = rank(uses, signal, layout)
        chosen = first_to_go(ranking)
        if chosen is None:
            self._warn("the node runs short, and only critical pods run", crossing)
            return
        crossed_for = asyncio.get_running_loop().time() - crossing.since
        if on_disk and crossed_for < LAYERS_S:
            self._layers_wait = is_premature(
                chosen,
                uses,
                signal,
                layout,
                grown=self._most_left(signal) - crossing.seen.available,
                crossed=self._clock.now() - crossed_for,
            )
            if self._layers_wait:
                return
        self._reclaimed = self._reclaimed and not what
        self.done.append(Done(self._clock.now(), crossing, tuple(ranking[:SHOWN]), chosen))
        self._evict(active[chosen.pod.uid], chosen.pod, crossing, same)

    async def _clear_away(self, crossing: Crossing, what: tuple[Reclaim, ...]) -> None:
        """Reclaim, then look whether that was enough."""
        well = False
        try:
            for each in what:
                try:
                    await self._reclaim(each)
                except Exception:  # the boundary of one kind of garbage: the other, and pods, go on
                    log.exception("the node could not be cleared up", extra={"of": each.value})
            seen = await self._look()
            well = is_well(seen.observations, self._rules, crossing.threshold.signal)
            self.done.append(Done(self._clock.now(), crossing, reclaimed=what, helped=well))
        finally:
            self._reclaimed = not well
            self._reclaiming = None
            self._signals.wake()

    def _evict(
        self, pod: Pod, candidate: Candidate, crossing: Crossing, same: Sequence[Crossing]
    ) -> None:
        signal, hard = crossing.threshold.signal, crossing.threshold.hard
        text = words.message(candidate, same)
        now = self._clock.now()

        def status(old: api.PodStatus) -> api.PodStatus:
            return words.evicted_status(old, text, now, pod.generation)

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
            annotations=words.event_annotations(candidate, crossing),
        )
        self._said.clear()
        self._evicted(signal.value)
        condition = condition_of(signal)
        task = asyncio.create_task(self._end(pod, condition, options), name=f"evict-{pod.uid}")
        self._ending[condition] = _Ending(hard, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, pod: Pod, condition: Condition, options: KillOptions) -> None:
        finished = self._finished.setdefault(pod.uid, asyncio.Event())
        try:
            async with asyncio.timeout(CLEANUP_S):
                await self._kill(pod, options)
                if not self._is_over(pod.uid):
                    await finished.wait()
                if condition is Condition.DISK:
                    await self._clear_after(pod.uid)
        except TimeoutError:
            log.warning("evicted pod takes longer than its grace", extra={"pod": pod.key})
            self._stuck.add(pod.uid)
        except Exception:  # the boundary of one pod's end: the node's next round goes on
            log.exception("pod could not be evicted", extra={"pod": pod.key})
        finally:
            self._finished.pop(pod.uid, None)
            ending = self._ending.get(condition)
            if ending is not None and ending.task is asyncio.current_task():
                del self._ending[condition]
            self._signals.wake()

    async def _clear_after(self, uid: str) -> None:
        """The next one is not judged by a disk that this one still fills."""
        loop = asyncio.get_running_loop()
        while True:
            again = loop.time() + CLEAR_AGAIN_S
            if await self._cleared(uid):
                return
            await asyncio.sleep(again - loop.time())

    def _warn(self, what: str, crossing: Crossing) -> None:
        """Say once why nothing is done, until something is or the node is well."""
        said = what, crossing.threshold
        if said not in self._said:
            self._said.add(said)
            log.warning(what, extra=_facts(crossing))


def _facts(crossing: Crossing) -> dict[str, object]:
    return {
        "signal": crossing.threshold.signal.value,
        "threshold": crossing.quantity,
        "available": crossing.seen.available,
    }
