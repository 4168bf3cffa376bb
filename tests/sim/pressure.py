"""A machine that runs short: what simulated pods take of its memory, disk, inodes and tasks.

It outlives the agents, as the kernel does. Usage is computed from what the runtime runs and keeps.
Running containers take memory and tasks. The disk is taken by containers, also dead ones, by their
layers until some time after removal, by volumes until they are torn down, and by images.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.node.eviction.decide import (
    CONFIRM_S,
    Layout,
    Observations,
    Signal,
    SignalObservation,
)
from kubeletpy.node.eviction.ranking import Candidate, DiskUse, Use, candidate
from kubeletpy.node.eviction.signal_observer import SETTLE_CHECK_S
from kubeletpy.pods.pod import Pod
from tests.sim import scripts
from tests.sim.client import Step
from tests.sim.history import History
from tests.sim.records import BILLION, Container, Sandbox, now_ns
from tests.sim.runtime import PAUSE, SimRuntime

MI = 1 << 20
MEMORY, DISK, INODES, TASKS = 8192 * MI, 100_000 * MI, 1_000_000, 30_000
IMAGE = 500 * MI
LEAST = {
    Signal.MEMORY: 1024 * MI,
    Signal.NODEFS: 10_000 * MI,
    Signal.NODEFS_INODES: 50_000,
    Signal.PIDS: 1000,
}
"""The least that must be left; less of it crosses a hard threshold."""
SOFT_MEMORY = 2048 * MI
SOFT_GRACE_S = 20.0
RECLAIM_DISK = 2000 * MI
ENOUGH = {**LEAST, Signal.MEMORY: SOFT_MEMORY, Signal.NODEFS: LEAST[Signal.NODEFS] + RECLAIM_DISK}
"""With so much left no threshold is crossed or waits for more."""
TRANSITION_S = 30.0
MIN_AGE_S = 10.0
GARBAGE_S = (0.0, 0.5, 0.5, 0.5, 8.0)
"""Most seconds for which a runtime keeps the layer of a removed container."""
APART_S = 2 * max(CONFIRM_S, SETTLE_CHECK_S)
"""Least seconds between two wrong numbers."""
VOLUME = "v"
"""The emptyDir that hungry pods have."""
SETTINGS: JSON = {
    "evictionHard": {signal.value: str(least) for signal, least in LEAST.items()},
    "evictionSoft": {"memory.available": str(SOFT_MEMORY)},
    "evictionSoftGracePeriod": {"memory.available": f"{SOFT_GRACE_S:g}s"},
    "evictionMinimumReclaim": {"nodefs.available": str(RECLAIM_DISK)},
    "evictionMaxPodGracePeriod": 3,
    "evictionPressureTransitionPeriod": f"{TRANSITION_S:g}s",
    "imageMinimumGCAge": f"{MIN_AGE_S:g}s",
}


@dataclass(frozen=True, slots=True)
class Appetite:
    """Usage of each of a pod's containers: (at its start, more each second). Bytes, inodes, tasks.

    Attributes:
        layer: of its writable layer, ``volume`` of an emptyDir.
        inodes: of the volume.
    """

    memory: tuple[float, float] = (1 * MI, 0)
    layer: tuple[float, float] = (0, 0)
    volume: tuple[float, float] = (0, 0)
    inodes: tuple[float, float] = (0, 0)
    tasks: tuple[float, float] = (2, 0)


@dataclass(slots=True)
class Taken:
    """Resources that one pod takes at one instant."""

    memory: float = 0
    layers: float = 0
    removed: float = 0
    """Layers of containers that are no longer in the runtime's records."""
    volumes: float = 0
    inodes: float = 0
    tasks: float = 0
    runs: bool = False

    @property
    def use(self) -> Use | None:
        """The usage that the agent should measure; None: no container runs."""
        if not self.runs:
            return None
        return Use(
            memory=int(self.memory),
            tasks=int(self.tasks),
            disk=DiskUse(
                layers=(int(self.layers), 0), volumes=(int(self.volumes), int(self.inodes))
            ),
        )


class Stores:
    """The machine's capacity, and what is left of it."""

    def __init__(
        self, runtime: SimRuntime, history: History, root: Path, rng: random.Random
    ) -> None:
        self._runtime = runtime
        self._history = history
        self._pods = root / "kubelet" / "pods"
        self._rng = rng
        self._removed: list[tuple[float, str, float]] = []
        """Layers that the runtime has still to remove: (when it will have, uid, bytes)."""
        self.appetites: dict[str, Appetite] = {}
        """Usage of each container, by the pod's name."""
        self._written: dict[str, tuple[float, float]] = {}
        """Bytes and inodes that ended containers left in volumes, by uid."""
        self.lies: Callable[[dict[Signal, SignalObservation]], Observations] = lambda seen: seen
        runtime.observers.append(self._changed)

    def taken(self) -> dict[str, Taken]:
        """The usage of all pods, by uid."""
        found: dict[str, Taken] = {}
        for container in self._runtime.containers.values():
            if not container.started_at:
                continue
            pod, wants = found.setdefault(container.uid, Taken()), self._appetite(container)
            age = self._ran(container)
            pod.layers += wants.layer[0] + age * wants.layer[1]
            if container.running:
                pod.runs = True
                pod.memory += wants.memory[0] + age * wants.memory[1]
                pod.tasks += wants.tasks[0] + age * wants.tasks[1]
                pod.volumes += wants.volume[0] + age * wants.volume[1]
                pod.inodes += wants.inodes[0] + age * wants.inodes[1]
        now = asyncio.get_running_loop().time()
        self._removed = [each for each in self._removed if each[0] > now]
        for _, uid, layer in self._removed:
            found.setdefault(uid, Taken()).removed += layer
        for uid in [uid for uid in self._written if not self._has_volume(uid)]:
            del self._written[uid]
        for uid, (volumes, inodes) in self._written.items():
            pod = found.setdefault(uid, Taken())
            pod.volumes += volumes
            pod.inodes += inodes
        return found

    def _has_volume(self, uid: str) -> bool:
        return (self._pods / uid / "volumes" / "kubernetes.io~empty-dir" / VOLUME).exists()

    def left(
        self, without: Collection[str] = (), *, garbage: Collection[str] = ()
    ) -> dict[Signal, float]:
        """Resources left, not counting the pods of these uids and these images."""
        pods = [taken for uid, taken in self.taken().items() if uid not in without]
        images = [image for image in self._runtime.images if image not in garbage]
        return {
            Signal.MEMORY: MEMORY - sum(pod.memory for pod in pods),
            Signal.NODEFS: DISK
            - sum(pod.layers + pod.removed + pod.volumes for pod in pods)
            - IMAGE * len(images),
            Signal.NODEFS_INODES: INODES - sum(pod.inodes for pod in pods),
            Signal.PIDS: TASKS - sum(pod.tasks for pod in pods),
        }

    def unused(self, image: str) -> bool:
        """Whether no container needs an image."""
        return image != PAUSE and all(c.image != image for c in self._runtime.containers.values())

    def observations(self) -> dict[Signal, SignalObservation]:
        """The machine's true numbers, as an agent would measure them."""
        now = asyncio.get_running_loop().time()
        all_ = {
            Signal.MEMORY: MEMORY,
            Signal.NODEFS: DISK,
            Signal.NODEFS_INODES: INODES,
            Signal.PIDS: TASKS,
        }
        return {
            signal: SignalObservation(max(0, int(left)), all_[signal], now)
            for signal, left in self.left().items()
        }

    def kill_the_greedy(self) -> None:
        """Kill the container with the largest memory usage, until no memory is lacking."""
        while self.left()[Signal.MEMORY] < 0:
            running = self._runtime.running()
            most = max(running, key=lambda c: (self._memory_of(c), c.id))
            self._history.note("kernel", f"out of memory: kills {most}")
            self._runtime.kill_container(most)

    def _memory_of(self, container: Container) -> float:
        at_start, a_second = self._appetite(container).memory
        return at_start + self._ran(container) * a_second

    def _appetite(self, container: Container) -> Appetite:
        return self.appetites.get(container.sandbox.config.metadata.name, Appetite())

    @staticmethod
    def _ran(container: Container) -> float:
        until = now_ns() if container.running else container.finished_at
        return max(0, until - container.started_at) / BILLION

    def _changed(self, what: str, whom: Container | Sandbox) -> None:
        if not isinstance(whom, Container) or not whom.started_at:
            return
        if what == "remove":
            at_start, a_second = self._appetite(whom).layer
            later = self._rng.choice(GARBAGE_S) * self._rng.random()
            until = asyncio.get_running_loop().time() + later
            self._removed.append((until, whom.uid, at_start + self._ran(whom) * a_second))
        if what == "exit":
            wants, ran = self._appetite(whom), self._ran(whom)
            volumes, inodes = self._written.get(whom.uid, (0.0, 0.0))
            self._written[whom.uid] = (
                volumes + wants.volume[0] + ran * wants.volume[1],
                inodes + wants.inodes[0] + ran * wants.inodes[1],
            )


Asked = Callable[[int, Sequence[Pod], bool], None]
"""Called with (life, pods, disk) when an agent is about to choose among pods."""


class SightOfOneLife:
    """The machine as one life of the agent sees it: kubeletpy's NodeSignals and PodUses."""

    def __init__(
        self, stores: Stores, step: Step, life: int, *, looks: Callable[[], None], requested: Asked
    ) -> None:
        """``looks`` is called at each measurement: a shortage may end before the judge's tick."""
        self._stores = stores
        self._step = step
        self._life = life
        self._looks = looks
        self._requested = requested
        self._woken = asyncio.Event()

    async def observe(self, desired: Collection[Signal]) -> Observations:
        """Measure what is left; the numbers may be wrong on purpose."""
        self._step("check", "look")
        self._looks()
        seen = self._stores.lies(self._stores.observations())
        return {signal: each for signal, each in seen.items() if signal in desired}

    async def layout(self) -> Layout | None:
        """Report one file system for everything."""
        return Layout.ONE

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """A kernel that sends no notifications."""

    async def noticed(self, within: float | None) -> None:
        """Wait that long, or until woken."""
        try:
            async with asyncio.timeout(within):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def wake(self) -> None:
        """Measure at once."""
        self._woken.set()

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Return each pod with its usage now."""
        self._step("call", "uses of pods")
        self._step("answer", "uses of pods")
        self._requested(self._life, pods, disk)
        taken = self._stores.taken()
        nothing = Taken()
        return [
            replace(candidate(pod, None, None), use=taken.get(pod.uid, nothing).use) for pod in pods
        ]

    async def close(self) -> None:
        """Do nothing: no resource is held."""


@dataclass(slots=True)
class Liar:
    """Numbers that are missing, old, negative or off, in one measurement at a time."""

    rng: random.Random
    rate: float = 0.0
    notified: int = 0
    _at: float = field(default=float("-inf"))
    _before: Mapping[Signal, SignalObservation] = field(default_factory=dict)

    def __call__(self, seen: dict[Signal, SignalObservation]) -> Observations:
        before, self._before = self._before, seen
        # A jump counts only when the next round, or the next measurement of what is freed, confirms
        # it, and the measurements in between. So there is no second wrong number so soon.
        now = asyncio.get_running_loop().time()
        if now - self._at <= APART_S or self.rng.random() >= self.rate:
            return seen
        self._at = now
        self.notified += 1
        signal = self.rng.choice(list(seen))
        true = seen[signal]
        # after a shortage in the previous measurement the agent believes another one at once
        short = signal in before and before[signal].available < ENOUGH[signal]
        wrong = self.rng.choice(
            (
                None,
                replace(true, available=-1),
                replace(true, at=true.at - 60),
                replace(true, at=true.at + 60),
                replace(true, capacity=0),
                None if short else replace(true, available=0),
                replace(true, available=true.capacity),
            )
        )
        if wrong is None:
            return {s: each for s, each in seen.items() if s is not signal}
        return {**seen, signal: wrong}


def local_image(name: str) -> str:
    """An image that nobody needs."""
    return f"{scripts.REMOTE}/{name}:1"
