"""Rules for a node that runs short, judged by the truth, never by the agent.

No pod is evicted while there is enough, before a pod that ranks first, or beside one whose eviction
frees enough. Static pods stay. The node frees garbage of its own first. The conditions match the
truth and do not flap. While resources are short, some pod is evicted in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kubeletpy.base.api.types import JSON
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.pods.pod import Pod
from kubeletpy_up.storage.history import Change
from tests.sim.api import NODE
from tests.sim.history import History
from tests.sim.pressure import (
    LEAST,
    MIN_AGE_S,
    RECLAIM_DISK,
    SOFT_GRACE_S,
    SOFT_MEMORY,
    TRANSITION_S,
    Stores,
    Taken,
)
from tests.sim.runtime import SimRuntime
from tests.sim.truth import Truth

CLEANUP_S = 30.0
CHECK_S = 10.0
IN_TIME_S = 15.0
"""Two certain measurements, the end of a pod, and what a reclaim takes."""
OF_DISK = {Signal.NODEFS, Signal.NODEFS_INODES}
CONDITIONS = {
    "MemoryPressure": (Signal.MEMORY,),
    "DiskPressure": (Signal.NODEFS, Signal.NODEFS_INODES),
    "PIDPressure": (Signal.PIDS,),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The state of the node when an agent was about to choose among pods."""

    at: float
    life: int
    left: dict[Signal, float]
    would_be_left: dict[Signal, float]
    """Like ``left``, without the pods that are being evicted."""
    cleared: dict[Signal, float]
    """Like ``left``, without the garbage that is old enough."""
    acting: frozenset[Signal]
    soft_over: bool
    """Too little memory for a soft threshold, for longer than its grace."""
    going: tuple[str, ...]
    pods: dict[str, Taken]


@dataclass(slots=True)
class Wish:
    """Priority and memory request of a pod, as the user wrote them."""

    priority: int = 0
    memory: float = 0


@dataclass(slots=True)
class PressureJudge:
    """Judges evictions: call :meth:`justifies` at each stop, ``tick`` often."""

    stores: Stores
    truth: Truth
    runtime: SimRuntime
    history: History
    life: Callable[[], int]
    wishes: dict[str, Wish] = field(default_factory=dict)
    """Priority and request, by the pod's name."""
    unseen: float = CHECK_S
    """Seconds for which measurements may miss a shortage."""
    calm: bool = True
    """Nothing goes wrong but the shortage itself."""
    evicted: dict[str, tuple[float, int, frozenset[Signal], bool]] = field(default_factory=dict)
    """uid -> (when, life, signals, softly)."""
    stories: list[str] = field(default_factory=list)
    _requested: list[Asked] = field(default_factory=list)
    _acting: set[Signal] = field(default_factory=set)
    _soft_since: float | None = None
    """Since when memory is below the soft threshold, but for times that no measurement may see."""
    _enough_since: float | None = None
    _short_at: dict[str, float] = field(default_factory=dict)
    """When a condition was last true."""
    _true_since: dict[str, float] = field(default_factory=dict)
    """Since when it is."""
    _seen_at: dict[str, float] = field(default_factory=dict)
    """When it was last true for so long that a measurement has seen it."""
    _short_since: dict[Signal, float] = field(default_factory=dict)
    _enough_at: dict[Signal, float] = field(default_factory=dict)
    """When there was last enough."""
    _unused_since: dict[str, float] = field(default_factory=dict)
    _reported: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    """Condition -> (status, when, life) as the API has it."""

    # -- what is seen ------------------------------------------------------------------------

    def tick(self) -> None:
        """Take note of what is left."""
        now, left = asyncio.get_running_loop().time(), self.stores.left()
        for signal, least in LEAST.items():
            more = RECLAIM_DISK if signal is Signal.NODEFS else 0
            if left[signal] < least:
                self._acting.add(signal)
                self._short_since.setdefault(signal, now)
            else:
                self._short_since.pop(signal, None)
                if left[signal] >= least + more:
                    self._acting.discard(signal)
                    self._enough_at[signal] = now
        enough = left[Signal.MEMORY] >= SOFT_MEMORY
        if not enough:
            self._enough_since = None
            self._soft_since = now if self._soft_since is None else self._soft_since
        elif self._enough_since is None:
            self._enough_since = now
        elif now - self._enough_since >= CHECK_S:
            self._soft_since = None
        for condition, signals in CONDITIONS.items():
            soft = condition == "MemoryPressure" and not enough
            if soft or self._acting & set(signals):
                self._short_at[condition] = now
                if now - self._true_since.setdefault(condition, now) >= self.unseen:
                    self._seen_at[condition] = now
            else:
                self._true_since.pop(condition, None)
        used = {i for i in self.runtime.images if not self.stores.unused(i)}
        for image in self.runtime.images:
            if image in used:
                self._unused_since.pop(image, None)
            else:
                self._unused_since.setdefault(image, now)
        self._in_time(now)

    def _in_time(self, now: float) -> None:
        """Check that a pod is evicted in time when there is too little."""
        if not self.calm or not self.life():
            return
        last = max((at for at, *_ in self.evicted.values()), default=0.0)
        could = any(
            not pod.static and not pod.terminal and self.runtime.running(pod.uid)
            for pod in self.truth.live()
        )
        for signal, since in self._short_since.items():
            if could and now - max(since, last) > IN_TIME_S + CLEANUP_S:
                self.history.violated(f"too little {signal} since {since:.1f}, and nobody goes")
                self._short_since[signal] = now

    def record_choice(self, life: int, pods: Sequence[Pod], disk: bool) -> None:
        """Record the state when an agent requests what pods take, to choose among them."""
        self.tick()
        now, taken = asyncio.get_running_loop().time(), self.stores.taken()
        going = tuple(
            uid
            for uid, (at, of_life, _, _) in self.evicted.items()
            if of_life == life and now - at < CLEANUP_S and uid in taken
        )
        # Nobody waits for the disk of a pod that was evicted for something else. When the node runs
        # short again, nobody waits for the rest of a pod after which there was enough.
        for_disk = [
            uid
            for uid in going
            if any(
                self.evicted[uid][0] > self._enough_at.get(signal, 0.0)
                for signal in self.evicted[uid][2] & OF_DISK
            )
        ]
        old = MIN_AGE_S + 20
        garbage = [i for i, since in self._unused_since.items() if now - since > old]
        self._requested.append(
            Asked(
                at=now,
                life=life,
                left=self.stores.left(),
                would_be_left=self.stores.left(going)
                | {signal: self.stores.left(for_disk)[signal] for signal in OF_DISK},
                cleared=self.stores.left(garbage=garbage),
                acting=frozenset(self._acting),
                soft_over=self._soft_since is not None
                and now - self._soft_since >= SOFT_GRACE_S - 0.5,
                going=going,
                pods={pod.uid: taken.get(pod.uid, Taken()) for pod in pods},
            )
        )

    # -- what is judged ----------------------------------------------------------------------

    def justifies(self, uid: str) -> bool:
        """Whether a healthy pod may be stopped, because it is evicted; notes how it is."""
        known = self.evicted.get(uid)
        if known is not None and known[1] == self.life():
            return True
        requested = next(
            (a for a in reversed(self._requested) if a.life == self.life() and uid in a.pods), None
        )
        if requested is None:
            return False
        self._judge(uid, requested)
        return True

    def api_changed(self, change: Change) -> None:
        """Check a change in the API's store."""
        if change.resource == "nodes" and change.object["metadata"]["name"] == NODE:
            self._conditions(change.object.get("status") or {})
        if change.resource != "pods":
            return
        status = change.object.get("status") or {}
        if status.get("reason") == "Evicted" and "low on resource" in status.get("message", ""):
            uid = change.object["metadata"]["uid"]
            if uid not in self.evicted and not self.justifies(uid):
                self.history.violated(f"{uid[:8]} is shown as evicted, but was no candidate")

    def _judge(self, uid: str, requested: Asked) -> None:
        pod = self.truth.pods.get(uid)
        if pod is None or pod.static:
            self.history.violated(f"static pod {uid[:8]} is evicted")
            return
        soft = requested.soft_over and Signal.MEMORY not in requested.acting
        signals = set(requested.acting) | ({Signal.MEMORY} if soft else set())
        if not signals:
            self.history.violated(f"{pod.name} is evicted while there is enough: {requested.left}")
        first = {signal for signal in signals if self._is_first(uid, signal, requested)}
        if signals and not first:
            self.history.violated(f"{pod.name} is evicted before others: {self._table(requested)}")
        soft = soft and first <= {Signal.MEMORY}  # no other signal has a soft threshold
        self.evicted[uid] = (requested.at, requested.life, frozenset(first), soft)
        if first & OF_DISK:
            pod.evicted_at = requested.at
        self.stories.append(f"{pod.name} {sorted(first)}{' soft' if soft else ''}")
        self.history.note("judge", f"{pod.name} {uid[:8]} goes: {sorted(first)} soft={soft}")
        if first and not any(self._is_needed(signal, requested, soft) for signal in first):
            self.history.violated(f"{pod.name} is evicted while {requested.going} go: enough")
        enough = LEAST[Signal.NODEFS] + RECLAIM_DISK
        if self.calm and first == {Signal.NODEFS} and requested.cleared[Signal.NODEFS] >= enough:
            self.history.violated(f"{pod.name} is evicted though garbage was left")

    def _is_needed(self, signal: Signal, requested: Asked, soft: bool) -> bool:
        least: float = SOFT_MEMORY if soft else LEAST[signal]
        if signal is Signal.NODEFS:
            least += RECLAIM_DISK
        if requested.would_be_left[signal] < least:
            return True
        # a hard threshold does not wait for who has the grace of a soft one
        return not soft and all(self.evicted[uid][3] for uid in requested.going)

    def _is_first(self, uid: str, signal: Signal, requested: Asked) -> bool:
        own = self._key(uid, signal, requested)
        return all(
            own <= self._key(other, signal, requested)
            for other in requested.pods
            if not self._stays(other) and not self._is_stuck(other, requested)
        )

    def _stays(self, uid: str) -> bool:
        pod = self.truth.pods.get(uid)
        return pod is None or pod.static

    def _is_stuck(self, uid: str, requested: Asked) -> bool:
        at = self.evicted.get(uid)
        return at is not None and at[1] == requested.life

    def _key(self, uid: str, signal: Signal, requested: Asked) -> tuple[object, ...]:
        pod, taken = self.truth.pods[uid], requested.pods[uid]
        wish = self.wishes.get(pod.name, Wish())
        if signal is Signal.PIDS:
            return (wish.priority, taken.runs, -int(taken.tasks))
        if not taken.runs:
            return (False,)
        used, request = {
            Signal.MEMORY: (int(taken.memory), wish.memory),
            Signal.NODEFS: (int(taken.layers) + int(taken.volumes), 0),
            Signal.NODEFS_INODES: (int(taken.inodes), 0),
        }[signal]
        return (True, used <= request, wish.priority, request - used)

    def _table(self, requested: Asked) -> str:
        rows = [
            f"{self.truth.pods[uid].name} {taken} {self.wishes.get(self.truth.pods[uid].name)}"
            for uid, taken in requested.pods.items()
            if uid in self.truth.pods
        ]
        return "; ".join([str(sorted(requested.acting)), *rows])

    # -- the conditions ----------------------------------------------------------------------

    def _conditions(self, status: JSON) -> None:
        now = asyncio.get_running_loop().time()
        self.tick()
        for condition in status.get("conditions") or ():
            name, notified = condition["type"], condition["status"]
            if name not in CONDITIONS:
                continue
            before, since, life = self._reported.get(name, ("False", now, 0))
            if notified == before:
                self._reported.setdefault(name, (notified, now, self.life()))
                continue
            self._reported[name] = (notified, now, self.life())
            self.history.note("judge", f"node is {name}={notified}")
            short = self._short_at.get(name)
            if notified == "True" and (short is None or now - short > TRANSITION_S + CHECK_S + 60):
                self.history.violated(f"{name} is reported without any shortage")
            seen = self._seen_at.get(name)
            if notified == "False" and seen is not None and now - seen < TRANSITION_S - self.unseen:
                self.history.violated(
                    f"{name}, reported since {since:.1f} (life {life}), ends at {now:.1f} in life "
                    f"{self.life()}: the shortage was at {seen:.1f}"
                )

    def not_well(self) -> list[str]:
        """Conditions that still hold."""
        return [
            f"{name}={notified}"
            for name, (notified, *_) in self._reported.items()
            if notified != "False"
        ]
