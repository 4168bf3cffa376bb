"""``python -m bench.volumes``: what volumes cost, and how soon a change reaches the container.

Measures three things on a private containerd. They are the time from a configMap's write to the
changed file, the start of a pod with five volumes, and the watches while many pods share one
configMap. Pods with and without volumes alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from pathlib import Path

from bench.manifests import NAMESPACE, manifest
from bench.results import quantile
from bench.stand import NODE, Stand, make_stand
from bench.usage import connections
from bench.watching import READY, REMOVED
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import CONFIGMAPS, PODS, SECRETS

_names = itertools.count(1)
SHARED = "bench-shared"
FIVE: list[JSON] = [
    {"name": "config", "configMap": {"name": SHARED}},
    {"name": "secret", "secret": {"secretName": SHARED}},
    {
        "name": "down",
        "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
    },
    {
        "name": "projected",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": SHARED}},
            ]
        },
    },
    {"name": "scratch", "emptyDir": {}},
]


def with_volumes(pod: JSON, volumes: list[JSON]) -> JSON:
    """The pod with these volumes mounted into its container."""
    mounts = [{"name": v["name"], "mountPath": f"/v/{v['name']}"} for v in volumes]
    spec = pod["spec"]
    container = {**spec["containers"][0], "volumeMounts": mounts}
    return {**pod, "spec": {**spec, "containers": [container], "volumes": volumes}}


async def start(stand: Stand, volumes: list[JSON]) -> tuple[str, float]:
    """Create a pod; returns its name and the seconds until it was Ready."""
    name = f"v{next(_names)}"
    begun = time.time()
    await stand.api.create(PODS, with_volumes(manifest(name, NODE), volumes), NAMESPACE)
    return name, await stand.pods.until(name, READY) - begun


async def remove(stand: Stand, *names: str) -> None:
    """Delete pods and wait until they are removed."""
    for name in names:
        await stand.api.delete(PODS, name, NAMESPACE)
    for name in names:
        await stand.pods.until(name, REMOVED)


async def compare_starts(stand: Stand, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds to Ready without and with five volumes."""
    without: list[float] = []
    with_five: list[float] = []
    for index in range(rounds + 1):
        for volumes, into in ((list[JSON](), without), (FIVE, with_five)):
            name, seconds = await start(stand, volumes)
            await remove(stand, name)
            if index:  # the first one of each is slower
                into.append(seconds)
    return without, with_five


async def change_latency(stand: Stand, changes: int) -> list[float]:
    """Seconds from the API's response to a configMap update until the file shows it."""
    name, _ = await start(stand, FIVE)
    uid = stand.pods.latest[name]["metadata"]["uid"]
    volume = stand.directory / "kubelet" / "pods" / uid / "volumes/kubernetes.io~configmap/config"
    latencies = []
    for number in range(changes):
        text = f"change {number}"
        begun = time.perf_counter()
        await stand.api.patch(CONFIGMAPS, SHARED, {"data": {"a": text}}, NAMESPACE)
        await asyncio.to_thread(_wait_for, volume / "a", text)
        latencies.append(time.perf_counter() - begun)
        await asyncio.sleep(0.05)
    await remove(stand, name)
    return latencies


async def shared_change(stand: Stand, pods: int) -> tuple[float, int]:
    """Seconds until a change is in the files of all pods that share the object.

    Also returns the number of API connections that the agent has then.
    """
    names = [name for name, _ in await asyncio.gather(*(start(stand, FIVE) for _ in range(pods)))]
    uids = [stand.pods.latest[name]["metadata"]["uid"] for name in names]
    root = stand.directory / "kubelet" / "pods"
    files = [root / uid / "volumes/kubernetes.io~configmap/config/a" for uid in uids]
    begun = time.perf_counter()
    await stand.api.patch(CONFIGMAPS, SHARED, {"data": {"a": "for all"}}, NAMESPACE)
    await asyncio.to_thread(_wait_for_all, files, "for all")
    seconds = time.perf_counter() - begun
    held = connections(stand.agent_pid)
    await remove(stand, *names)
    return seconds, held


def _wait_for_all(files: list[Path], text: str) -> None:
    for file in files:
        _wait_for(file, text)


def _wait_for(file: Path, text: str) -> None:
    end = time.monotonic() + 30
    while file.read_text() != text:
        if time.monotonic() > end:
            raise TimeoutError(f"{file} is still {file.read_text()!r}")
        time.sleep(0.001)  # nothing announces a renamed symlink: poll


async def run(generation: int, rounds: int, changes: int, pods: int) -> None:
    """Measure and print."""
    async with make_stand(generation) as stand:
        await stand.api.create(
            CONFIGMAPS, {"metadata": {"name": SHARED}, "data": {"a": "0"}}, NAMESPACE
        )
        await stand.api.create(
            SECRETS, {"metadata": {"name": SHARED}, "data": {"k": "MA=="}}, NAMESPACE
        )
        await stand.start_agent()
        without, with_five = await compare_starts(stand, rounds)
        print(_line("create -> Ready, no volumes", without))
        print(_line("create -> Ready, five volumes", with_five))
        more = quantile(with_five, 0.5) - quantile(without, 0.5)
        print(f"five volumes cost {more * 1000:.0f} ms in the median (aim: at most 40)")
        print(_line("configMap written -> file changed", await change_latency(stand, changes)))
        seconds, connections = await shared_change(stand, pods)
        print(f"one change in the files of {pods} pods after {seconds * 1000:.0f} ms")
        print(f"the agent has {connections} API connections while they share their objects")
        await stand.stop_agent()


def _line(what: str, seconds: list[float]) -> str:
    p50, p95 = (quantile(seconds, q) * 1000 for q in (0.5, 0.95))
    return f"{what}: p50 {p50:.0f} ms, p95 {p95:.0f} ms ({len(seconds)} samples)"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.volumes")
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=30)
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    asyncio.run(run(supplied.containerd, supplied.rounds, supplied.changes, supplied.pods))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
