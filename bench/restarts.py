"""``python -m bench.restarts``: how late restarts, pulls and deadlines come after they are due.

Runs crash loops, images that can't be pulled and pods with a deadline side by side on a real
containerd. The times come from the runtime's own records and from the agent's timelines. Must never
measure with a clock of its own where one of those has the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections import defaultdict

from bench.manifests import CONTAINER, NAMESPACE, manifest
from bench.results import quantile
from bench.stand import NODE, Stand, make_stand
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.cli import agent_socket
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import NotFound
from kubeletpy.runtime_manager.names import CONTAINER_NAME, POD_NAME

CRASHES, PULLS, DEADLINES = 6, 3, 4
DEADLINE_S = 7
BACKOFFS = (0.0, 10.0, 20.0, 40.0, 80.0)
"""Seconds before the first, second, ... restart, and before the pulls after the first failure."""
AIM_S = 0.1


def crashing(name: str) -> JSON:
    """A pod whose container exits repeatedly, each time after a while, not while others start."""
    pod = manifest(name, NODE)
    pod["spec"]["restartPolicy"] = "Always"
    script = f"sleep {2 + int(name[-1]) / 4}; exit 3"
    pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", script]
    return pod


def unpullable(name: str) -> JSON:
    """A pod whose image does not exist."""
    pod = manifest(name, NODE)
    pod["spec"]["containers"][0]["image"] = "127.0.0.1:1/none:1"
    return pod


def dated(name: str) -> JSON:
    """A pod with an active deadline of DEADLINE_S or more."""
    pod = manifest(name, NODE)
    pod["spec"]["activeDeadlineSeconds"] = _deadline(name)
    return pod


def _deadline(name: str) -> int:
    """Seconds; each pod has its own."""
    return DEADLINE_S + int(name[-1])


class Measured:
    """Lateness in seconds, by kind of event."""

    def __init__(self) -> None:
        self.late: dict[str, list[float]] = defaultdict(list)

    def restarts(self, runs: dict[int, tuple[float, float, float]]) -> None:
        """``runs``: attempt -> created, started, finished (Unix seconds)."""
        for attempt, (created, started, _) in runs.items():
            before = runs.get(attempt - 1)
            if before is None or attempt > len(BACKOFFS):
                continue
            due = before[2] + BACKOFFS[attempt - 1]
            kind = "after its end" if attempt == 1 else "after its backoff"
            self.late[f"restart made {kind}"].append(created - due)
            self.late[f"restarted container runs {kind}"].append(started - due)

    def pulls(self, timeline: JSON) -> None:
        """Take the image pulls from one pod's start."""
        pulls = [p for p in timeline["start"]["spans"] if p["name"] == "pull image"]
        for number, (before, after) in enumerate(itertools.pairwise(pulls), 1):
            due = before["end"] + BACKOFFS[number]
            self.late["pull after its backoff"].append(after["start"] - due)


async def measure(stand: Stand, seconds: float) -> Measured:
    """Measure for that many seconds."""
    runtime = RemoteRuntime(stand.agent_runtime.endpoint)
    await runtime.connect(20)
    await stand.start_agent()
    measured = Measured()
    kinds = {crashing: CRASHES, unpullable: PULLS, dated: DEADLINES}
    made = [make(f"{make.__name__}{n}") for make, count in kinds.items() for n in range(count)]
    failed = asyncio.get_running_loop().create_task(_failures(stand))
    try:
        for pod in made:
            await stand.api.create(PODS, pod, NAMESPACE)
        runs = await _follow_runs(runtime, seconds)
        for each in runs.values():
            measured.restarts(each)
        socket = stand.directory / "kubelet" / agent_socket.SOCKET_NAME
        for number in range(PULLS):
            name = f"{unpullable.__name__}{number}"
            answer = agent_socket.get_json(socket, "pods", NAMESPACE, name, "timeline")
            measured.pulls(answer)
        for name, when in (await failed).items():
            start = parse_time(stand.pods.latest[name]["status"]["startTime"])
            measured.late["Failed shown after the deadline"].append(when - start - _deadline(name))
    finally:
        failed.cancel()
        for pod in made:
            await stand.api.delete(PODS, pod["metadata"]["name"], NAMESPACE, grace_period_seconds=1)
        for pod in made:
            await stand.pods.until(pod["metadata"]["name"], "gone")
        await runtime.close()
    return measured


async def _failures(stand: Stand) -> dict[str, float]:
    """When the watch first showed each pod with a deadline as Failed."""
    found: dict[str, float] = {}
    answer = await stand.api.list(PODS)
    version = answer["metadata"]["resourceVersion"]
    async for event in stand.api.watch(PODS, resource_version=version, timeout_seconds=600):
        status = event.object.get("status") or {}
        if status.get("reason") == "DeadlineExceeded" and status.get("phase") == "Failed":
            found.setdefault(event.object["metadata"]["name"], time.time())
        if len(found) == DEADLINES:
            break
    return found


async def _follow_runs(
    runtime: RemoteRuntime, seconds: float
) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Pod -> attempt -> created, started, finished; exited containers are soon removed."""
    runs: dict[str, dict[int, tuple[float, float, float]]] = defaultdict(dict)
    ended_at = asyncio.get_running_loop().time() + seconds
    # what is measured are the runtime's records: polling twice a second misses none of them
    while asyncio.get_running_loop().time() < ended_at:
        for container in await runtime.list_containers():
            if container.labels.get(CONTAINER_NAME) != CONTAINER:
                continue
            try:
                status = (await runtime.container_status(container.id)).status
            except NotFound:
                continue
            if status.finished_at:
                moments = (status.created_at, status.started_at, status.finished_at)
                created, started, finished = (each / 1e9 for each in moments)
                runs[container.labels[POD_NAME]][status.metadata.attempt] = (
                    created,
                    started,
                    finished,
                )
        await asyncio.sleep(0.5)
    return runs


def table(measured: Measured) -> str:
    """One line per kind."""
    lines = [f"{'late, ms':<42} {'n':>4} {'p50':>8} {'p99':>8} {'max':>8}"]
    for what, late in sorted(measured.late.items()):
        figures = [quantile(late, 0.5), quantile(late, 0.99), max(late)]
        reported = " ".join(f"{figure * 1000:>8.1f}" for figure in figures)
        lines.append(f"{what:<42} {len(late):>4} {reported}")
    due = measured.late["restart made after its backoff"]
    kept = sum(late <= AIM_S for late in due)
    lines.append(f"restarts within {AIM_S * 1000:.0f} ms of due: {kept} of {len(due)}")
    return "\n".join(lines)


async def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.restarts", description=__doc__)
    parser.add_argument(
        "--containerd", type=int, choices=(1, 2), default=2, help="major version; 2 has CRI events"
    )
    parser.add_argument("--seconds", type=float, default=40.0)
    supplied = parser.parse_args()
    async with make_stand(supplied.containerd) as stand:
        print(table(await measure(stand, supplied.seconds)))


if __name__ == "__main__":
    asyncio.run(main())
