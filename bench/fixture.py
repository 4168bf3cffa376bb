"""Measures the cluster of the pytest fixture, and how it ends.

    python -m bench.fixture [--engine real] [--turns 10] [--pods 100]
    python -m bench.fixture --forgotten 200

Each turn is a new program. The best turn and the median are printed, as seconds and as seconds of
processor time. ``--forgotten`` kills programs with so many clusters altogether by
SIGKILL, and waits until nothing of them is left. Needs no root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PODS = 100
"""Number in a turn, and maximum for a node."""
NAMESPACES = 20
AIMS = {
    "embedded": {"ready": 0.6, "pods": 2.5, "namespace": 0.005, "megabytes": 110.0},
    "real": {"ready": 6.0},
}
IN_A_PROGRAM = 10
"""Forgotten clusters of one program."""
WITHIN_S = 120.0

TURN = """
import sys, time
begun = time.perf_counter(), time.process_time()

from pathlib import Path
from kubeletpy.library.cluster import Cluster
with Cluster(Path(sys.argv[2]), engine=sys.argv[1], nodes=sys.argv[4:]) as cluster:
    ready = time.perf_counter() - begun[0], time.process_time() - begun[1]
    from bench.fixture import measure
    measure(cluster, *ready, int(sys.argv[3]))
"""
"""The program of a turn, from its first line."""
FORGETS = """
import sys, time
from pathlib import Path
from kubeletpy.library.cluster import Cluster
for number in range(int(sys.argv[2])):
    Cluster(Path(sys.argv[1], f"cluster{number}"), engine="embedded").start()
print("started", flush=True)
time.sleep(1000)
"""


def measure(cluster: Any, ready: float, cpu: float, pods: int) -> None:
    """Print what a program measures of its cluster, as JSON."""
    figures = {"ready": ready, "ready, cpu": cpu}
    times = []
    for _ in range(NAMESPACES):
        begun = time.perf_counter()
        with cluster.namespace():
            times.append(time.perf_counter() - begun)
    figures["namespace"] = statistics.median(times)
    memory = _status(os.getpid(), "VmRSS")
    with cluster.namespace() as namespace:
        before = time.process_time()
        figures["pods"] = asyncio.run(_run_pods(cluster.kubeconfig, namespace, pods))
        figures["pods, cpu"] = time.process_time() - before
        figures["kB per pod"] = (_status(os.getpid(), "VmRSS") - memory) / pods
        begun, before = time.perf_counter(), time.process_time()
    figures["removed"] = time.perf_counter() - begun
    figures["removed, cpu"] = time.process_time() - before
    figures["megabytes"] = _status(os.getpid(), "VmHWM") / 1024
    print(json.dumps(figures))


async def _run_pods(kubeconfig: Path, namespace: str, pods: int) -> float:
    """Seconds from the first request until all pods of a namespace are Running."""
    from kubeletpy.kubeapi.client import KubeClient
    from kubeletpy.kubeapi.protocol import PODS as RESOURCE

    client = await KubeClient.from_kubeconfig(str(kubeconfig))
    try:
        begun, running = time.perf_counter(), set()
        spec = {"containers": [{"name": "c", "image": "idle"}]}
        for number in range(pods):
            pod = {"metadata": {"name": f"p{number}"}, "spec": spec}
            await client.create(RESOURCE, pod, namespace)
        events: Any = client.watch(
            RESOURCE, namespace, resource_version="0", timeout_seconds=int(WITHIN_S)
        )
        async for event in events:
            if event.object.get("status", {}).get("phase") == "Running":
                running.add(event.object["metadata"]["name"])
            if len(running) == pods:
                return time.perf_counter() - begun
        raise RuntimeError("the watch has ended")
    finally:
        await client.close()


def _status(pid: int, field: str) -> int:
    """A number of /proc/PID/status, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(field)


def turn(engine: str, pods: int) -> dict[str, float]:
    """The figures of one program."""
    nodes = [f"node-{number}" for number in range(1, -(-pods // PODS) + 1)]
    with tempfile.TemporaryDirectory(prefix="fixture-") as directory:
        command = (sys.executable, "-c", TURN, engine, f"{directory}/c", str(pods), *nodes)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def forget(count: int) -> None:
    """Kill programs with clusters, one program after the other."""
    for number in range(0, count, IN_A_PROGRAM):
        with tempfile.TemporaryDirectory(prefix="fixture-") as directory:
            clusters = min(IN_A_PROGRAM, count - number)
            command = (sys.executable, "-c", FORGETS, directory, str(clusters))
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
                before, memory = len(list(_remains(directory))), _status(process.pid, "VmRSS")
                process.send_signal(signal.SIGKILL)
            begun = time.monotonic()
            while found := list(_remains(directory)):
                if time.monotonic() > begun + WITHIN_S:
                    raise SystemExit(f"these are left: {', '.join(found)}")
                time.sleep(0.02)
            after = time.monotonic() - begun
        text = f"{before} processes and directories with {memory >> 10} MB, none"
        print(f"{number + clusters} clusters: {text} after {after:.2f} s", flush=True)


def _remains(directory: str) -> Iterator[str]:
    """Processes, mounts and directories of clusters below a directory."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if directory.encode() in (each / "cmdline").read_bytes():
                yield f"process {each.name}"
        except OSError:
            continue  # it has ended
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    yield from (line for line in mounts if f" {directory}/" in line)
    yield from map(str, Path(directory).iterdir())


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench.fixture", description=__doc__)
    parser.add_argument("--engine", choices=AIMS, default="embedded")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--pods", type=int, default=PODS, help=f"{PODS} of them for each node")
    parser.add_argument("--forgotten", type=int, metavar="CLUSTERS")
    chosen = parser.parse_args()
    if chosen.forgotten:
        forget(chosen.forgotten)
        return
    turns = [turn(chosen.engine, chosen.pods) for _ in range(chosen.turns)]
    print(f"engine {chosen.engine}, {chosen.turns} turns, load {os.getloadavg()[0]:.1f}")
    for name in turns[0]:
        values = [each[name] for each in turns]
        aim = AIMS[chosen.engine].get(name) if chosen.pods == PODS else None
        desired = f"; aim {aim:g}" if aim else ""
        print(f"{name}: best {min(values):.4g}, median {statistics.median(values):.4g}{desired}")


if __name__ == "__main__":
    main()
