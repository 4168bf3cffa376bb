"""The order of a run: floor and agent alternate, so that both get the same machine.

Durations are in milliseconds for one pod, in seconds for a burst.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.floor import Floor, Step
from bench.manifests import NAMESPACE, manifest
from bench.results import Results, Row
from bench.stand import NODE, Stand
from bench.subject import Subject
from bench.usage import cpu_seconds, memory
from bench.watching import READY
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.remote.client import RemoteRuntime

SETTLE = 0.5
"""Seconds after a burst in which the agent's late work still counts as the burst's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    starts: int
    """Cold starts of the agent."""
    single: int
    """Rounds with one pod."""
    bursts: tuple[tuple[int, int], ...]
    """(pods, rounds); rounds end alternately by deletion and by exit."""
    idle_pods: int
    idle_seconds: float
    parallel: tuple[int, ...]
    """Degrees of parallelism for the floor to choose from; a single one is taken as is."""
    after_start: float = 10.0
    """Seconds from a start on in which the agent's CPU time is measured."""
    calm: float = 5.0
    """Seconds of calm before idleness is measured."""


FULL = Plan(5, 20, ((10, 6), (30, 4), (60, 3)), 60, 30.0, (3, 4, 6, 8, 12))
QUICK = Plan(1, 2, ((3, 1),), 3, 1.0, (4,), after_start=2.0, calm=1.0)
TURN = Plan(3, 8, ((60, 3),), 60, 20.0, (4,))
"""One of several turns with another agent."""


def many(bursts: Sequence[int]) -> Plan:
    """Two bursts of each of these numbers of pods, then the idle node with the most of them."""
    return Plan(1, 4, tuple((pods, 2) for pods in bursts), max(bursts), 60.0, (4,))


@dataclass(slots=True)
class Samples:
    """Per kind ("create", "delete", "exit"): milliseconds of each pod, seconds of each round."""

    each: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    total: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, moments: Sequence[tuple[float, float]]) -> None:
        """Add the times of one step."""
        self.each[kind] += [(end - start) * 1000 for start, end in moments]
        begin = min(start for start, _ in moments)
        self.total[kind].append(max(end for _, end in moments) - begin)


class Bench:
    """One run on a stand."""

    def __init__(self, stand: Stand, plan: Plan, generation: int) -> None:
        self._stand = stand
        self._plan = plan
        self._events = generation >= 2
        self.results = Results(generation)
        self._number = 0
        self._step = "connecting to the runtimes"
        self._floor: Floor
        self._subject: Subject

    async def run(self) -> None:
        """Measure everything; a step that fails ends the run, with the figures of those before."""
        stand = self._stand
        runtimes = [RemoteRuntime(r.endpoint) for r in (stand.floor_runtime, stand.agent_runtime)]
        try:
            for runtime in runtimes:
                await runtime.connect(20)
            self._floor = Floor(stand.api, stand.pods, runtimes[0], stand.directory / "raw")
            self._subject = Subject(stand.api, stand.pods, runtimes[1])
            await self._measure()
        except Exception as error:  # noqa: BLE001 - the figures so far are half an hour of work
            traceback.print_exc()
            self.results.failure = f"{self._step}: {error}"
        finally:
            for runtime in runtimes:
                await runtime.close()

    async def _measure(self) -> None:
        plan = self._plan
        await self._starts()
        self._say("warming up")
        await self._round(1, "delete", Samples(), Samples())
        await self._choose_parallel()
        await self._one_pod()
        await self._takeovers()
        for pods, rounds in plan.bursts:
            await self._burst(pods, rounds)
        await self._idle()

    async def _starts(self) -> None:
        self._say("process start to node Ready")
        times, cpu, later = [], [], []
        after = self._plan.after_start
        for left in reversed(range(self._plan.starts)):
            times.append(await self._stand.start_agent())
            cpu.append(cpu_seconds(self._stand.agent_pid))
            await asyncio.sleep(max(0.0, after - times[-1]))
            later.append(cpu_seconds(self._stand.agent_pid))
            if left:
                await self._stand.stop_agent()
        self._row(Row("start -> node Ready", 0, "s", times, aim=0.5, aim_on="value"))
        self._row(Row("agent CPU until Ready", 0, "s", cpu))
        aim = 0.7 if after == FULL.after_start else None
        self._row(Row(f"agent CPU in {after:g} s", 0, "s", later, aim=aim, aim_on="value"))

    async def _choose_parallel(self) -> None:
        """Find the floor's best number of pods at once, by the total time of a burst."""
        choices = self._plan.parallel
        self.results.floor_parallel = self._floor.parallel = choices[0]
        if len(choices) == 1:
            return
        pods, best = 24, float("inf")
        for parallel in choices:
            self._floor.parallel = parallel
            names = self._names(pods)
            samples = Samples()
            samples.add("create", await self._floor.create(names))
            await self._floor.remove(names)
            total = samples.total["create"][0]
            self._say(f"floor with {parallel} pods at once: {pods} pods in {total:.2f} s")
            if total < best:
                best, self.results.floor_parallel = total, parallel
        self._floor.parallel = self.results.floor_parallel

    async def _one_pod(self) -> None:
        self._say("one pod")
        floor, agent = Samples(), Samples()
        for number in range(self._plan.single):
            await self._round(1, "exit" if number % 2 else "delete", floor, agent)
        each, raw = agent.each, floor.each
        self._row(Row("create -> Ready", 1, "ms", each["create"], raw["create"], 1.3))
        self._row(Row("delete -> removed", 1, "ms", each["delete"], raw["delete"], 2.0))
        self._exit_row(1, each["exit"], raw.get("exit", []))

    async def _takeovers(self) -> None:
        """The agent is killed, a pod comes meanwhile, and the next agent finds it."""
        self._say("a pod that waits for the next agent")
        stand, times, nodes, cpu = self._stand, [], [], []
        for _ in range(self._plan.starts):
            names = self._names(1)
            await asyncio.to_thread(stand.agent_process.kill)
            await stand.api.create(PODS, manifest(names[0], NODE), NAMESPACE)
            stand.nodes.forget(NODE)  # its next change is the new agent's
            begun = time.time()
            await asyncio.to_thread(stand.launch_agent)
            times.append(await stand.pods.until(names[0], READY) - begun)
            nodes.append(await stand.nodes.until(NODE, READY) - begun)
            cpu.append(cpu_seconds(stand.agent_pid))
            await self._subject.settled(names)
            await self._subject.remove(names)
        self._row(Row("next start -> node Ready", 0, "s", nodes, aim=0.4, aim_on="value"))
        self._row(Row("next start -> waiting pod Ready", 1, "s", times, aim=1.2, aim_on="value"))
        self._row(Row("agent CPU until then", 1, "s", cpu))

    async def _burst(self, pods: int, rounds: int) -> None:
        self._say(f"bursts of {pods} pods")
        floor, agent = Samples(), Samples()
        cpu: dict[str, list[float]] = defaultdict(list)
        for number in range(rounds):
            await self._round(pods, "exit" if number % 2 else "delete", floor, agent, cpu)
        each, raw = agent.each, floor.each
        total, raw_total = agent.total, floor.total
        self._row(Row("all Ready", pods, "s", total["create"], raw_total["create"], 1.15))
        self._row(Row("create -> Ready", pods, "ms", each["create"], raw["create"]))
        self._row(Row("all removed", pods, "s", total["delete"], raw_total["delete"], 1.15))
        self._row(Row("delete -> removed", pods, "ms", each["delete"], raw["delete"]))
        if each["exit"]:
            self._exit_row(pods, each["exit"], raw.get("exit", []))
        for kind, aim in (("create", 0.035), ("delete", 0.025), ("exit", None)):
            limit = None if aim is None else aim * 1000
            if spent := [seconds * 1000 for seconds in cpu[f"agent {kind}"]]:
                self._row(
                    Row(f"agent CPU per pod, {kind}", pods, "ms", spent, aim=limit, aim_on="value")
                )
        for kind in ("create", "delete"):
            if spent := [seconds * 1000 for seconds in cpu[f"api {kind}"]]:
                self._row(Row(f"API server CPU per pod, {kind}", pods, "ms", spent))
        self._row(
            Row(
                "containerd CPU per pod, create",
                pods,
                "ms",
                [seconds * 1000 for seconds in cpu["runtime create"]],
                [seconds * 1000 for seconds in cpu["floor runtime create"]],
            )
        )

    async def _round(
        self,
        pods: int,
        ending: str,
        floor: Samples,
        agent: Samples,
        cpu: dict[str, list[float]] | None = None,
    ) -> None:
        """The same lifecycle of the same number of pods: raw, then through the agent."""
        burst = pods > 1
        cpu = defaultdict(list) if cpu is None else cpu
        stand, raw, subject = self._stand, self._floor, self._subject
        names = self._names(pods)
        ends: dict[str, tuple[Step, Step]] = {
            "delete": (raw.delete, subject.delete),
            "exit": (raw.exit, subject.exit),
        }
        raw_end, subject_end = ends[ending]
        runtime = stand.floor_runtime.pid or 0
        floor.add("create", await self._cpu(raw.create, names, cpu, {"floor runtime": runtime}))
        await raw.settled(names)
        if ending == "delete" or self._events:
            floor.add(ending, await raw_end(names))
        await raw.remove(names)
        names = self._names(pods)
        pids = {"agent": stand.agent_pid, "runtime": stand.agent_runtime.pid or 0}
        if stand.server.process is not None:
            pids["api"] = stand.api_pid
        async with self._counting(f"create {pods}", pods):
            agent.add("create", await self._cpu(subject.create, names, cpu, pids))
        await subject.settled(names)
        async with self._counting(f"{ending} {pods}", pods):
            agent.add(ending, await self._cpu(subject_end, names, cpu, pids))
        await subject.remove(names)
        if burst:
            await subject.cleaned()

    @asynccontextmanager
    async def _counting(self, what: str, pods: int) -> AsyncIterator[None]:
        """Record the agent's calls per pod; the last step of each kind counts."""
        before = await asyncio.to_thread(self._stand.counters)
        yield
        after = await asyncio.to_thread(self._stand.counters)
        self.results.calls_per_pod[what] = {
            kind: (count - before.get(kind, 0)) / pods
            for kind, count in after.items()
            if count > before.get(kind, 0)
        }

    async def _cpu(
        self, step: Step, names: Sequence[str], cpu: dict[str, list[float]], pids: dict[str, int]
    ) -> list[tuple[float, float]]:
        """Run a step and record the CPU-seconds per pod of processes."""
        before = {who: cpu_seconds(pid) for who, pid in pids.items()}
        moments = await step(names)
        if len(names) > 1:
            await asyncio.sleep(SETTLE)
        kind = step.__name__
        for who, pid in pids.items():
            cpu[f"{who} {kind}"].append((cpu_seconds(pid) - before[who]) / len(names))
        return moments

    async def _idle(self) -> None:
        """The cost of idle pods: for the agent, its containerd and one without an agent."""
        stand, pods, seconds = self._stand, self._plan.idle_pods, self._plan.idle_seconds
        self._say(f"idle with {pods} pods for {seconds:g} s")
        raw, ours = self._names(pods), self._names(pods)
        await self._floor.create(raw)
        await self._subject.create(ours)
        await asyncio.sleep(self._plan.calm)
        pids = {
            "agent": stand.agent_pid,
            "runtime": stand.agent_runtime.pid or 0,
            "floor": stand.floor_runtime.pid or 0,
        }
        before = {who: cpu_seconds(pid) for who, pid in pids.items()}
        await asyncio.sleep(seconds)
        used = {who: (cpu_seconds(pid) - before[who]) / seconds * 100 for who, pid in pids.items()}
        taken = memory(stand.agent_pid)
        row = Row("agent idle CPU", pods, "% of a core", [used["agent"]], aim=1.0, aim_on="value")
        self._row(row)
        floor = [used["floor"]] if used["floor"] else []
        self._row(Row("containerd idle CPU", pods, "% of a core", [used["runtime"]], floor))
        rss = taken.rss / 1e6
        self._row(Row("agent RSS", pods, "MB", [rss], aim=100.0, aim_on="value"))
        self._row(Row("agent RSS at most", pods, "MB", [taken.peak / 1e6]))
        await self._floor.remove(raw)
        await self._subject.remove(ours)

    def _exit_row(self, pods: int, agent: list[float], floor: list[float]) -> None:
        aim = (50.0 if self._events else 1100.0) if pods == 1 else None
        self._row(Row("exit -> Succeeded", pods, "ms", agent, floor, aim, "value"))

    def _names(self, count: int) -> list[str]:
        self._number += 1
        return [f"p{self._number}-{index}" for index in range(count)]

    def _row(self, row: Row) -> None:
        self.results.rows.append(row)

    def _say(self, text: str) -> None:
        self._step = text
        print(f"… {text}", flush=True)
