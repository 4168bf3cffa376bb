"""The run of a fleet: it joins, gets pods, is idle, loses its API server, and is restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.fleet.node import FleetNode
from bench.fleet.server import FleetServer
from bench.fleet.tally import Phase, Row

BOOT_SPREAD_S = 1.0
"""Seconds within which agents that are started together begin."""
DOWN_S = 5.0
"""Seconds that a restarted agent is down."""
CHECK_S = 0.25
READY_S = 300.0
PHASES = ("join", "deploy", "steady", "outage", "recovery", "rolling", "restart")


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a fleet, and how long each phase lasts in seconds."""

    nodes: int = 1000
    pods: int = 1
    """On each node."""
    binds: float = 250.0
    """Pods bound per second in the whole fleet."""
    phases: Sequence[str] = PHASES
    seed: int = 1
    join_s: float = 60.0
    settle_s: float = 30.0
    steady_s: float = 600.0
    outage_s: float = 600.0
    recovery_s: float = 180.0
    rolling_s: float = 300.0
    restart_s: float = 180.0
    server: float = 1.0
    """The part of a server's default seats and queues that the fleet has."""


@dataclass(slots=True)
class Record:
    """The results of a run."""

    plan: Plan
    phases: list[Phase] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    renewals: dict[str, list[float]] = field(default_factory=dict)
    connections: dict[int, int] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    def phase(self, name: str) -> Phase:
        """A phase by name. Raises KeyError."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)

    def as_json(self) -> dict[str, Any]:
        """For a file; renewals are left out, their requests are counted."""
        return {
            "plan": asdict(self.plan),
            "phases": [asdict(phase) for phase in self.phases],
            "rows": self.rows,
            "connections": self.connections,
            "facts": self.facts,
        }


class Fleet:
    """All nodes and their server. Create it inside a SimLoop, below an empty directory."""

    def __init__(self, plan: Plan, root: Path, say: Callable[[str], None] = lambda text: None):
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.server = FleetServer(random.Random(f"{plan.seed} server"), plan.server)
        self.nodes = [
            FleetNode(f"node-{number}", self.server, root / f"node-{number}", plan.seed)
            for number in range(plan.nodes)
        ]
        self.record = Record(plan)
        self._loop = asyncio.get_running_loop()
        self._say = say

    async def run(self) -> Record:
        """All phases of the plan, in order."""
        for name in PHASES:
            if name in self.plan.phases:
                await getattr(self, f"_{name}")()
        self.record.rows = sorted((*key, n) for key, n in self.server.counted.items())
        self.record.renewals = self.server.renewals
        self.record.connections = dict(self.server.connections)
        for name, level in self.server.levels.items():
            self.record.facts[f"most waiting in {name}"] = level.most_waiting
        return self.record

    @asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[None]:
        await asyncio.sleep(-self._loop.time() % 1.0)
        start = round(self._loop.time())
        yield
        await asyncio.sleep(-self._loop.time() % 1.0)
        self.record.phases.append(Phase(name, start, round(self._loop.time())))
        self._say(name)

    async def _until(self, what: Callable[[], bool], seconds: float) -> float:
        """Wait for a condition, with a timeout; returns the seconds that it took."""
        begun = self._loop.time()
        for _ in range(round(seconds / CHECK_S)):
            if what():
                break
            await asyncio.sleep(CHECK_S)
        return self._loop.time() - begun

    async def _start_all(self) -> None:
        offsets = sorted(self.rng.uniform(0, BOOT_SPREAD_S) for _ in self.nodes)
        begun = self._loop.time()
        for node, offset in zip(self.nodes, offsets, strict=True):
            await asyncio.sleep(max(begun + offset - self._loop.time(), 0.0))
            node.start()

    async def _join(self) -> None:
        async with self._phase("join"):
            await self._start_all()
            end = self._loop.time() + self.plan.join_s
            took = await self._until(lambda: all(n.ready for n in self.nodes), self.plan.join_s)
            self.record.facts["join: all nodes Ready after s"] = took
            await asyncio.sleep(end - self._loop.time())

    async def _deploy(self) -> None:
        desired = self.plan.nodes * self.plan.pods
        async with self._phase("deploy"):
            for number in range(desired):
                self.nodes[number % self.plan.nodes].create_pod(f"pod-{number}")
                await asyncio.sleep(1 / self.plan.binds)
            took = await self._until(
                lambda: sum(node.ready_pods() for node in self.nodes) == desired, READY_S
            )
            self.record.facts["deploy: all pods Ready s after the last bind"] = took

    async def _steady(self) -> None:
        await asyncio.sleep(self.plan.settle_s)
        async with self._phase("steady"):
            await asyncio.sleep(self.plan.steady_s)

    async def _outage(self) -> None:
        async with self._phase("outage"):
            self.server.down()
            await asyncio.sleep(self.plan.outage_s)

    async def _recovery(self) -> None:
        async with self._phase("recovery"):
            self.server.restart()
            await asyncio.sleep(self.plan.recovery_s)

    async def _rolling(self) -> None:
        pause = self.plan.rolling_s / self.plan.nodes

        async def restart(node: FleetNode) -> None:
            await node.stop()
            await asyncio.sleep(DOWN_S)
            node.start()

        async with self._phase("rolling"), asyncio.TaskGroup() as group:
            for node in self.nodes:
                group.create_task(restart(node))
                await asyncio.sleep(pause)
        await asyncio.sleep(self.plan.settle_s)

    async def _restart(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))
        await asyncio.sleep(DOWN_S)
        async with self._phase("restart"):
            await self._start_all()
            await asyncio.sleep(self.plan.restart_s)

    async def stop(self) -> None:
        """Stop all agents."""
        await asyncio.gather(*(node.stop() for node in self.nodes))


@contextmanager
def without_mounts() -> Iterator[None]:
    """Volumes in memory are plain directories: a fleet's are too many for one machine."""
    with patch("kubeletpy.volumes.files.disk.mount"):
        yield
