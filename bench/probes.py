"""Probes at scale: 110 pods with three 1-second probes each, on the real prober.

Measures how late each run is against its probe's own grid (p50, p99, worst), and the CPU time.
It also measures how late the event loop is for other tasks during the probes and before them. One
server process stands for the containers; commands run on a runtime with a set duration.
``python -m bench.probes [--pods N] [--kind http|tcp|exec]``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import SystemClock
from kubeletpy.kubeapi.events.writer import LogRecorder
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.probes.prober import Prober, Target
from kubeletpy.probes.schedule import ProbeFinding
from kubeletpy.remote.generated import api_pb2 as cri

SETTLE_S = 3.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class NotedProber(Prober):
    """A prober that records when each probe runs."""

    runs: dict[tuple[str, str, str], list[float]]

    async def run(self, target: Target, *, quietly: bool) -> ProbeFinding:
        key = (target.pod.uid, target.container["name"], target.spec.kind)
        self.runs[key].append(asyncio.get_running_loop().time())
        return await super().run(target, quietly=quietly)


class CommandRuntime:
    """A runtime on which every command takes a while and succeeds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        await asyncio.sleep(self._seconds)
        return cri.ExecSyncResponse()


def handler(kind: str, port: int) -> dict[str, Any]:
    """A probe of that kind, every second."""
    how: dict[str, Any] = {
        "http": {"httpGet": {"port": port, "path": "/healthz", "host": "127.0.0.1"}},
        "tcp": {"tcpSocket": {"port": port, "host": "127.0.0.1"}},
        "exec": {"exec": {"command": ["true"]}},
    }
    return {**how[kind], "periodSeconds": 1, "timeoutSeconds": 1}


def bench_pod(number: int, kind: str, port: int) -> Pod:
    """Two containers with three probes between them."""
    probe = handler(kind, port)
    containers: list[Any] = [
        {"name": "a", "image": "i", "livenessProbe": probe, "readinessProbe": probe},
        {"name": "b", "image": "i", "livenessProbe": probe},
    ]
    metadata: Any = {"name": f"p{number}", "namespace": "bench", "uid": f"u{number}"}
    return Pod({"metadata": metadata, "spec": {"containers": containers}})


def running(pod: Pod, since: float) -> Any:
    """A status with all containers of a pod running."""
    entries = [
        {
            "name": container["name"],
            "containerID": f"bench://{pod.uid}-{container['name']}",
            "started": True,
            "state": {"running": {"startedAt": format_time(since)}},
        }
        for container in pod.containers
    ]
    return {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": entries}


async def lateness_of_others(seconds: float) -> list[float]:
    """How late a timer fires that is due every 10 ms: what everything else on the loop sees."""
    loop = asyncio.get_running_loop()
    late, end = [], loop.time() + seconds
    while (due := loop.time() + 0.01) < end:
        await asyncio.sleep(0.01)
        late.append(loop.time() - due)
    return late


def slips(runs: Sequence[float], period: float = 1.0) -> list[float]:
    """How late each run is on the earliest grid that fits; a skipped one shows as a period."""
    base = min(at - n * period for n, at in enumerate(runs))
    return [at - n * period - base for n, at in enumerate(runs)]


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile of seconds, in milliseconds."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 1)


async def measure(pods: int, kind: str, seconds: float, port: int, command_s: float) -> Any:
    """Probe for a while and return the figures."""
    clock, statuses = SystemClock(), dict[str, Any]()
    prober = NotedProber(CommandRuntime(command_s), LogRecorder())  # type: ignore[arg-type]
    prober.runs = defaultdict(list)
    manager = KubeProbeManager(
        prober,
        clock=clock,
        get_status=statuses.get,
        on_result=lambda *result: None,
        metrics=Metrics().probes,
        agent_started_at=lambda: clock.now() - 3600,
    )
    before = await lateness_of_others(SETTLE_S)
    for number in range(pods):
        pod = bench_pod(number, kind, port)
        statuses[pod.uid] = running(pod, clock.now())
        manager.add_pod(pod)
        await asyncio.sleep(2.0 / pods)  # a burst of pods, not one instant
    await asyncio.sleep(SETTLE_S)
    prober.runs.clear()
    begun, cpu = time.monotonic(), time.process_time()
    others = await lateness_of_others(seconds)
    wall, cpu = time.monotonic() - begun, time.process_time() - cpu
    found = [slip for runs in prober.runs.values() for slip in slips(runs)]
    count = sum(map(len, prober.runs.values()))
    expected = len(manager) * wall
    await manager.close()
    return {
        "kind": kind,
        "pods": pods,
        "probes": len(prober.runs),
        "runs per second": round(count / wall, 1),
        "runs missing %": round(100 * (1 - count / expected), 1),
        "slip ms": {
            "p50": percentile(found, 0.5),
            "p99": percentile(found, 0.99),
            "worst": percentile(found, 1),
        },
        "late without probes ms": {
            "p50": percentile(before, 0.5),
            "p99": percentile(before, 0.99),
            "worst": percentile(before, 1),
        },
        "others late ms": {
            "p50": percentile(others, 0.5),
            "p99": percentile(others, 0.99),
            "worst": percentile(others, 1),
        },
        "cpu % of a core": round(100 * cpu / wall, 1),
        "cpu us per run": round(cpu / count * 1e6),
    }


async def serve() -> None:
    """Stands in for the containers: accepts connections and answers requests."""

    class Server(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(ANSWER)
            self.transport.close()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def server_process() -> Any:
    """Run the server in a process of its own; yields its port."""
    command = [sys.executable, "-m", "bench.probes", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--kind", choices=("http", "tcp", "exec"), default="http")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--command-seconds", type=float, default=0.06)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    supplied = parser.parse_args()
    if supplied.serve:
        asyncio.run(serve())
        return
    with server_process() as port:
        found = asyncio.run(
            measure(supplied.pods, supplied.kind, supplied.seconds, port, supplied.command_seconds)
        )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
