"""``python -m bench.curve``: what a pod costs when there are many on one node.

For each number: all pods at once by raw calls on a containerd of its own, then through the agent;
then the node idles with them. ``--agent`` measures a Go kubelet instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.floor import Floor
from bench.results import Results, Row, table
from bench.stand import Stand, make_stand
from bench.subject import Subject
from bench.usage import connections, cpu_seconds, memory
from kubeletpy.remote.client import RemoteRuntime

COUNTS = (60, 110, 250, 500)
PREFIX = 22
"""Prefix length of the pod network: 1,021 addresses."""
PARALLEL = 4
"""Pods that the floor works on at once: the best of ``python -m bench`` on two CPUs."""
CALM_S = 10.0
IDLE_S = 60.0
PATIENCE_S = 1200.0


async def run(counts: Sequence[int], generation: int, program: Path | None) -> Results:
    """Measure."""
    results = Results(generation, floor_parallel=PARALLEL)
    limits = {"maxPods": max(counts) + 10}
    async with make_stand(
        generation, config=lambda _: limits, program=program, prefix=PREFIX
    ) as stand:
        stand.pods.patience = PATIENCE_S
        runtimes = [RemoteRuntime(r.endpoint) for r in (stand.floor_runtime, stand.agent_runtime)]
        for runtime in runtimes:
            await runtime.connect(20)
        floor = Floor(stand.api, stand.pods, runtimes[0], stand.directory / "raw")
        floor.parallel = PARALLEL
        subject = Subject(stand.api, stand.pods, runtimes[1])
        await stand.start_agent()
        results.rows.append(_memory(stand, 0))
        await floor.create(["warm"])
        await floor.remove(["warm"])
        await subject.create(["warm"])
        await subject.remove(["warm"])
        for pods in counts:
            print(f"… {pods} pods", flush=True)
            results.rows += await _point(stand, floor, subject, pods)
        for runtime in runtimes:
            await runtime.close()
        await stand.stop_agent()
    return results


async def _point(stand: Stand, floor: Floor, subject: Subject, pods: int) -> list[Row]:
    names = [f"raw{pods}-{index}" for index in range(pods)]
    raw = await floor.create(names)
    await floor.remove(names)
    names = [f"p{pods}-{index}" for index in range(pods)]
    before = cpu_seconds(stand.agent_pid)
    ours = await subject.create(names)
    cost = cpu_seconds(stand.agent_pid) - before
    await asyncio.sleep(CALM_S)
    before = cpu_seconds(stand.agent_pid)
    await asyncio.sleep(IDLE_S)
    idle = (cpu_seconds(stand.agent_pid) - before) / IDLE_S * 100
    rows = [
        Row("all Ready", pods, "s", [_whole(ours)], [_whole(raw)], 1.1),
        Row("create -> Ready", pods, "s", _each(ours), _each(raw)),
        Row("agent CPU per pod, create", pods, "ms", [cost / pods * 1000]),
        Row("agent idle CPU", pods, "% of a core", [idle], aim=1.5, aim_on="value"),
        _memory(stand, pods),
        Row("TCP connections of the agent", pods, "", [connections(stand.agent_pid)]),
    ]
    before = cpu_seconds(stand.agent_pid)
    removed = await subject.delete(names)
    cost = cpu_seconds(stand.agent_pid) - before
    rows.append(Row("all removed", pods, "s", [_whole(removed)]))
    rows.append(Row("agent CPU per pod, delete", pods, "ms", [cost / pods * 1000]))
    await subject.remove(names)
    await subject.cleaned()
    return rows


def _memory(stand: Stand, pods: int) -> Row:
    aim = 120.0 if pods else 60.0
    return Row(
        "agent RSS", pods, "MB", [memory(stand.agent_pid).rss / 1e6], aim=aim, aim_on="value"
    )


def _each(moments: Sequence[tuple[float, float]]) -> list[float]:
    return [end - start for start, end in moments]


def _whole(moments: Sequence[tuple[float, float]]) -> float:
    return max(end for _, end in moments) - min(start for start, _ in moments)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.curve", description="Cost of a pod when there are many on a node."
    )
    parser.add_argument("pods", type=int, nargs="*", default=list(COUNTS))
    parser.add_argument(
        "--containerd", type=int, choices=(1, 2), default=2, help="major version; 2 has CRI events"
    )
    parser.add_argument(
        "--agent", type=Path, metavar="PROGRAM", help="measure this Go kubelet instead"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    results = asyncio.run(run(supplied.pods, supplied.containerd, supplied.agent))
    print(table(results))
    if supplied.json is not None:
        supplied.json.write_text(json.dumps(results.as_json(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
