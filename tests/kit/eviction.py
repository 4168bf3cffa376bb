"""A machine on virtual time whose resources pods consume, its eviction keeper, and rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.config.load import default_settings
from kubeletpy.node.eviction.decide import (
    EvictionDecision,
    EvictionState,
    Layout,
    Observations,
    Rules,
    Signal,
    SignalObservation,
    decide,
    from_settings,
)
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.eviction.ranking import Candidate, DiskUse, Reclaim, Use, rank
from kubeletpy.node.eviction.signal_observer import Meter
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import is_critical
from kubeletpy.podworkers.records import KillOptions
from tests.kit.pods import make_pod
from tests.kit.virtual_time import EPOCH, LoopClock

GI = 1 << 30
MEMORY, DISK, INODES, TASKS = 16 * GI, 100 * GI, 1_000_000, 30_000


@dataclass
class Eater:
    """A pod that consumes more each second, from its start until it has ended."""

    pod: Pod
    memory: int = 0
    disk: int = 0
    tasks: int = 0
    memory_a_second: float = 0.0
    disk_a_second: float = 0.0
    tasks_a_second: float = 0.0
    ends_after: float = 1.0
    """Seconds from the kill until it has stopped."""
    counted_every: float = 0.0
    """Its disk use is its writable layer, which the runtime measures at this interval."""
    started: float = 0.0
    killed_at: float | None = None
    stopped_at: float | None = None

    def use(self, now: float) -> Use:
        """Its use of memory, processes and disk."""
        if self.stopped_at is not None and now >= self.stopped_at:
            return Use()
        age = now - self.started
        if self.counted_every:
            counted = now // self.counted_every * self.counted_every
            at = int((EPOCH + counted) * 1e9)
            return Use(disk=DiskUse(layers=(self.on_disk(counted), 1), layers_at=at))
        return Use(
            memory=int(self.memory + age * self.memory_a_second),
            tasks=int(self.tasks + age * self.tasks_a_second),
            disk=DiskUse(logs=(self.on_disk(now), 1)),
        )

    def on_disk(self, now: float) -> int:
        """Bytes on the disk, measured or not."""
        return int(self.disk + max(0.0, now - self.started) * self.disk_a_second)


def eater(name: str, *, priority: int = 0, request: int = 0, **of: Any) -> Eater:
    """A pod with the given consumption."""
    container = {"name": "main", "image": "i"}
    if request:
        container["resources"] = {"requests": {"memory": str(request)}}  # type: ignore[assignment]
    return Eater(make_pod(name, priority=priority, containers=[container]), **of)


@dataclass
class Eviction:
    """A kill by the keeper, with the observations and the ranking at that time."""

    at: float
    name: str
    options: KillOptions
    seen: Mapping[Signal, SignalObservation]
    order: Mapping[Signal, list[str]]


@dataclass
class Machine:
    """Test double for NodeSignals and PodUses."""

    rules: Rules
    eaters: list[Eater]
    garbage: int = 0
    """Bytes of disk that a reclaim frees."""
    layers_go_at: float = 0.0
    """Time until which the runtime keeps what pods have left."""
    evictions: list[Eviction] = field(default_factory=list)
    events: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    reclaims: list[tuple[float, Reclaim]] = field(default_factory=list)
    notified: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    lie: Callable[[Observations], Observations] = lambda seen: seen
    layers: Callable[[], int] = lambda: 0
    """Bytes of disk that ended pods have left."""
    where: Layout | None = Layout.ONE
    clears: list[tuple[float, bool]] = field(default_factory=list)
    reported: bool = True
    """The API has the final statuses of pods."""
    freed_later: bool = False
    """Result of a reclaim: space is freed later."""
    meter: Meter | None = None

    def __post_init__(self) -> None:
        self.woken = asyncio.Event()
        self.keeper = self.new_keeper()

    def new_keeper(self) -> EvictionKeeper:
        """Creates a keeper, as after a restart of the agent."""
        self.keeper = EvictionKeeper(
            self.rules,
            self,
            self,
            self.meter,
            pod=lambda uid: next((e.pod for e in self.running() if e.pod.uid == uid), None),
            pods=lambda: [each.pod for each in self.running()],
            kill=self.kill,
            has_stopped=lambda uid: all(each.pod.uid != uid for each in self.running()),
            is_over=lambda uid: all(each.pod.uid != uid for each in self.running()),
            reclaim=self.reclaim,
            clear=self.clear,
            changed=lambda: self.notified.append((self.now(), self.keeper.conditions)),
            recorder=self,
            clock=LoopClock(),
            node_name="n1",
        )
        return self.keeper

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def running(self) -> list[Eater]:
        now = self.now()
        return [e for e in self.eaters if e.stopped_at is None or now < e.stopped_at]

    def truth(self) -> dict[Signal, SignalObservation]:
        """Amounts that are really available."""
        now = self.now()
        uses = [each.use(now) for each in self.running()]
        memory = MEMORY - sum(use.memory for use in uses)
        disk = (
            DISK - self.garbage - self.layers() - sum(each.on_disk(now) for each in self.running())
        )
        tasks = TASKS - sum(use.tasks for use in uses)
        return {
            Signal.MEMORY: SignalObservation(max(0, memory), MEMORY, now),
            Signal.NODEFS: SignalObservation(max(0, disk), DISK, now),
            Signal.PIDS: SignalObservation(max(0, tasks), TASKS, now),
        }

    async def observe(self, desired: Collection[Signal]) -> Observations:
        self.looks.append(self.now())
        return self.lie({s: seen for s, seen in self.truth().items() if s in desired})

    async def layout(self) -> Layout | None:
        return self.where

    def arm(self, margins: Mapping[Signal, int]) -> None:
        pass

    async def noticed(self, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                await self.woken.wait()
        except TimeoutError:
            pass
        self.woken.clear()

    def wake(self) -> None:
        self.woken.set()

    async def close(self) -> None:
        pass

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        uids = {pod.uid for pod in pods}
        return [c for c in self.all_candidates() if c.uid in uids]

    def all_candidates(self) -> list[Candidate]:
        now = self.now()
        return [
            Candidate(
                each.pod.uid,
                each.pod.key,
                each.pod.spec.get("priority") or 0,
                is_critical(each.pod),
                _requests(each.pod),
                use=each.use(now),
            )
            for each in self.running()
        ]

    async def kill(self, pod: Pod, options: KillOptions) -> None:
        now = self.now()
        order = {
            signal: [r.pod.key for r in rank(self.all_candidates(), signal, Layout.ONE)]
            for signal in Signal
        }
        self.evictions.append(Eviction(now, pod.name, options, self.truth(), order))
        killed = next(each for each in self.eaters if each.pod.uid == pod.uid)
        killed.killed_at = now
        ends = min(killed.ends_after, options.grace_override or 30)
        if killed.ends_after > 60:
            ends = killed.ends_after
        if killed.stopped_at is None or now + ends < killed.stopped_at:
            killed.stopped_at = now + ends
        await asyncio.sleep(max(0.0, killed.stopped_at - now))

    async def clear(self, uid: str, *, unreported: bool) -> bool:
        self.clears.append((self.now(), unreported))
        return self.now() >= self.layers_go_at and (unreported or self.reported)

    async def reclaim(self, what: Reclaim) -> bool:
        await asyncio.sleep(2)
        self.reclaims.append((self.now(), what))
        if what is Reclaim.IMAGES:
            self.garbage = 0
        return self.freed_later

    def event(
        self,
        involved: api.ObjectReference,
        event_type: str,
        reason: str,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.events.append((reason, message, annotations or {}))

    async def runs(self, seconds: float) -> None:
        """Runs the keeper for the given time."""
        task = asyncio.create_task(self.keeper.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait({task})

    @property
    def evicted(self) -> list[str]:
        return [each.name for each in self.evictions]


def _requests(pod: Pod) -> dict[str, int]:
    resources: Any = pod.containers[0].get("resources") or {}
    return {name: int(text) for name, text in (resources.get("requests") or {}).items()}


MI = 1 << 20


def rules(**document: Any) -> Rules:
    """Rules from a configuration."""
    return from_settings(default_settings(**document))


class Rounds:
    """Consecutive rounds of observation, as a keeper makes them."""

    def __init__(self, of: Rules) -> None:
        self.rules = of
        self.state = EvictionState()
        self.now = 1000.0

    def observe(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """Decides on an observation with these amounts available, of 10 Gi for each signal."""
        self.now += after
        seen = {
            Signal[name]: SignalObservation(amount, 10 * GI, self.now)
            for name, amount in available.items()
        }
        decision = decide(seen, self.rules, self.state, self.now, at_once=0)
        self.state = decision.state
        return decision

    def confirm(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """Makes two rounds with the same observation."""
        self.observe(after, **available)
        return self.observe(0.05, **available)
