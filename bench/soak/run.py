"""One soak from start to end: churn with faults, then without killing the agent, then the end.

At the end nothing may be left of any pod, neither on the machine nor in the agent's process.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from bench.manifests import NAMESPACE, manifest
from bench.soak.churn import Churn
from bench.soak.faults import KILLED, LONGEST, RESTARTED, ConnectionLimiter, Faults, Health
from bench.soak.history import History
from bench.soak.leftovers import (
    Process,
    files,
    left,
    log_lines,
    lost_shims,
    lost_tasks,
    process,
    unsettled,
)
from bench.soak.streams import Streams
from bench.soak.truth import Truth
from bench.stand import NODE, Stand, make_stand
from bench.watching import READY, REMOVED
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import PODS

KILLED_PART = 0.6
"""Share of the time in which the agent is killed; then one process lives on, so it can leak."""
SETTLES_WITHIN = 45.0
EMPTY_WITHIN = 90.0
LOOK = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a run.

    Attributes:
        generation: of containerd.
        seconds: of churn; what follows is bounded too.
        seed: for everything random.
        kill_every: seconds between two kills of the agent, on average.
        longest: seconds that a fault lasts at most.
    """

    generation: int
    seconds: float
    seed: int
    kill_every: float = 20.0
    longest: float = LONGEST


@dataclass(slots=True)
class Soak:
    """The findings of a run."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    lost_by_runtime: list[str] = field(default_factory=list)
    """State that the runtime lost in a restart; not the agent's fault."""
    counts: Counter[str] = field(default_factory=Counter)
    before: Process | None = None
    after: Process | None = None
    seconds: float = 0.0
    settled: float = 0.0
    emptied: float = 0.0
    faults: list[str] = field(default_factory=list)
    """Faults with their times (UTC)."""


async def soak(plan: Plan, keep: Path | None = None) -> Soak:
    """Run it; ``keep``: a file for the agent's log, with containerd's next to it."""
    result, begun = Soak(plan), time.monotonic()
    async with make_stand(plan.generation, floor=False, config=_config) as stand:
        (stand.directory / "manifests").mkdir()
        limiter = ConnectionLimiter(_port_of(stand))
        await limiter.open()
        kubeconfig = _through(limiter, stand)
        try:
            await _Run(stand, limiter, kubeconfig, result).whole()
        finally:
            limiter.close()
            if keep is not None:
                await asyncio.to_thread(_keep_logs, stand, keep)
    result.seconds = time.monotonic() - begun
    return result


class _Run:
    def __init__(
        self, stand: Stand, limiter: ConnectionLimiter, kubeconfig: Path, result: Soak
    ) -> None:
        draws = [random.Random(f"{result.plan.seed} {part}") for part in range(3)]
        self.stand, self.result = stand, result
        self.health, self.history = Health(), History()
        self.truth = Truth(stand.agent_runtime)
        plan = result.plan
        self.churn = Churn(stand, draws[0], self.truth.forced.add)
        self.streams = Streams(stand, draws[1])
        self.faults = Faults(
            stand, limiter, kubeconfig, self.health, draws[2], longest=plan.longest
        )
        stand.pods.observers += [
            lambda kind, obj: self.history.take(kind, obj, self.health.seconds),
            self.truth.take,
        ]

    async def whole(self) -> None:
        """From an idle agent to an idle agent."""
        seconds, kill_every = self.result.plan.seconds, self.result.plan.kill_every
        await self.churn.prepare()
        await self.faults.start_agent()
        result = self.result
        result.before, empty = await self.warm()
        doing = [self.churn.run(), self.streams.run(), self.faults.guard()]
        async with _tasks(*doing, self.faults.others()):
            async with _tasks(self.faults.kills(kill_every)):
                await asyncio.sleep(seconds * KILLED_PART)
            await asyncio.sleep(seconds * (1 - KILLED_PART))
        result.counts["pods at the end"] = len(self.stand.pods.latest)
        result.settled = await self.until(
            SETTLES_WITHIN, "after the churn", lambda: unsettled(self.stand)
        )
        await self.churn.remove_all()
        loses = bool(self.faults.counts[RESTARTED] or self.faults.counts[KILLED])

        async def of_pods() -> list[str]:
            return await asyncio.to_thread(left, self.stand, empty, lost_count=not loses)

        result.emptied = await self.until(EMPTY_WITHIN, "at the end", of_pods)
        for lost in (lost_shims, lost_tasks):
            result.lost_by_runtime += await asyncio.to_thread(lost, self.stand)
        self.history.overdue(self.health.seconds)
        result.after = await self.check()
        await self.truth.close()
        self.judge()

    async def warm(self) -> tuple[Process, set[str]]:
        """Run and end one pod; returns the agent's process resources and files afterwards."""
        name = "warm"
        made = await self.stand.api.create(PODS, manifest(name, NODE), NAMESPACE)
        uid = made["metadata"]["uid"]
        await self.stand.pods.until(name, READY)
        await self.streams.once()
        await self.stand.api.delete(PODS, name, NAMESPACE)
        await self.stand.pods.until(name, REMOVED)

        async def of_pods() -> list[str]:
            found = await asyncio.to_thread(left, self.stand, set())
            return [line for line in found if uid in line or not line.startswith("file: ")]

        await self.until(EMPTY_WITHIN, "after the first pod", of_pods)
        return await self.check(), await asyncio.to_thread(files, self.stand)

    async def check(self) -> Process:
        """The resources that the agent's process holds now."""
        tasks, heap = [await self.streams.profile(name) for name in ("goroutine", "heap")]
        return process(self.stand.agent_pid, tasks, heap)

    async def until(
        self, seconds: float, when: str, wrong: Callable[[], Awaitable[list[str]]]
    ) -> float:
        """Wait until nothing is wrong and return the seconds; a timeout is a violation."""
        begun = time.monotonic()
        while found := await wrong():
            if time.monotonic() - begun > seconds:
                self.result.violations += [f"{when}: {line}" for line in found]
                break
            await asyncio.sleep(LOOK)
        return time.monotonic() - begun

    def judge(self) -> None:
        """Collect everything that was found."""
        result = self.result
        result.violations += self.faults.violations + self.history.violations
        result.faults = self.faults.done
        result.violations += self.truth.violations
        text = self.stand.agent_process.log.read_text(errors="replace")
        result.violations += [f"log: {line}" for line in log_lines(text)]
        assert result.before is not None
        assert result.after is not None
        result.violations += result.after.grown(result.before, self.history.pods)
        for counts in (self.churn.counts, self.streams.counts, self.faults.counts):
            result.counts.update(counts)
        seen = {"pods": self.history.pods, "restarts": self.history.restarts}
        result.counts.update(seen | {"exit codes compared": self.truth.compared})


@asynccontextmanager
async def _tasks(*coroutines: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run these concurrently with the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in coroutines]
        yield
        for task in tasks:
            task.cancel()


def _keep_logs(stand: Stand, agent: Path) -> None:
    shutil.copyfile(stand.agent_process.log, agent)
    shutil.copyfile(stand.agent_runtime.log, agent.with_suffix(".containerd"))


def _config(directory: Path) -> JSON:
    pki = directory / "api" / "pki"
    return {
        "staticPodPath": str(directory / "manifests"),
        "fileCheckFrequency": "1s",
        "authentication": {"x509": {"clientCAFile": str(pki / "ca.crt")}},
        "tlsCertFile": str(pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
    }


def _kubeconfig(stand: Stand) -> JSON:
    text = stand.server.node.read_text()
    found: JSON = yaml.safe_load(text)
    return found


def _port_of(stand: Stand) -> int:
    port: int | None = urlsplit(_kubeconfig(stand)["clusters"][0]["cluster"]["server"]).port
    assert port is not None
    return port


def _through(limiter: ConnectionLimiter, stand: Stand) -> Path:
    """A kubeconfig for the agent that leads through the door."""
    config = _kubeconfig(stand)
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{limiter.port}"
    path = stand.directory / "door.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def report(result: Soak) -> str:
    """A short table, then each violation."""
    counts = ", ".join(f"{what} {n}" for what, n in sorted(result.counts.items()))
    lines = [
        f"soak on containerd {result.plan.generation}.x, seed {result.plan.seed}: "
        f"{result.seconds:.0f} s",
        f"  did      {counts}",
        f"  settled  {result.settled:.1f} s after the churn, "
        f"empty {result.emptied:.1f} s after all was deleted",
        f"  before   {result.before}",
        f"  after    {result.after}",
        f"  wrong    {len(result.violations)}",
    ]
    if result.lost_by_runtime:
        lines.insert(-1, f"  containerd lost {', '.join(result.lost_by_runtime)}")
    lines += [f"    {each}" for each in result.violations]
    if result.violations:
        lines += ["  faults (UTC)", *(f"    {each}" for each in result.faults)]
    return "\n".join(lines)
