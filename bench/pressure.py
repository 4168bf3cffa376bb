"""How soon a pod ends that takes more memory than the node can spare.

Pods have little memory, in a cgroup with a limit. A pod fills a volume in memory until less than
the hard threshold is left. Polling of the cgroup detects the crossing. The end of the container is
that of its process, because the runtime removes its own record too soon.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import time
from collections import defaultdict
from pathlib import Path

from bench.floor import main_processes
from bench.manifests import NAMESPACE, manifest
from bench.stand import CGROUP_ROOT, NODE, Stand
from bench.watching import READY
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import NODES, PODS
from kubeletpy.remote.client import RemoteRuntime
from tools.env import kernel_limits

MI = 1 << 20
ROOM, THRESHOLD = 400 * MI, 200 * MI
EATS = 296
"""MiB: not enough to trigger the kernel's OOM killer."""
AIM_S = 1.0
TERMINAL = ("Failed", "Succeeded")
SCRIPT = (
    f"trap 'exit 0' TERM; i=0; while [ $i -lt {EATS // 8} ]; do "
    "dd if=/dev/zero of=/mem/$((i%2))/$i bs=8M count=1 2>/dev/null; "
    "i=$((i+1)); sleep 0.05 & wait $!; done; "
    "while :; do sleep 1 & wait $!; done"
)
"""A few hundred megabytes per second."""


def machine_memory() -> int:
    """Total memory in bytes."""
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert found is not None
    return int(found[1]) << 10


def settings(_: Path) -> JSON:
    """Fields of the KubeletConfiguration."""
    return {
        "systemReserved": {"memory": str(machine_memory() - ROOM)},
        "evictionHard": {"memory.available": str(THRESHOLD)},
        "evictionPressureTransitionPeriod": "1s",
    }


def eater(name: str) -> JSON:
    """A pod that eats up memory."""
    pod = manifest(name, NODE)
    container = pod["spec"]["containers"][0]
    container["command"] = ["/bin/sh", "-c", SCRIPT]
    # one in memory is no larger than what pods may have, and does not reach the threshold alone
    volumes = [f"mem-{number}" for number in range(2)]
    container["volumeMounts"] = [
        {"name": name, "mountPath": f"/mem/{name[-1]}"} for name in volumes
    ]
    pod["spec"]["volumes"] = [{"name": name, "emptyDir": {"medium": "Memory"}} for name in volumes]
    return pod


def _left(group: str) -> int:
    """Bytes that pods have left, as the kubelet calculates it."""
    return ROOM - kernel_limits.working_set(group)


def _crossed(group: str) -> float:
    """Block until less than the threshold is left; returns when (Unix seconds)."""
    until = time.time() + 60
    least = ROOM
    while (left := _left(group)) >= THRESHOLD:
        least = min(least, left)
        if time.time() > until:
            raise TimeoutError(f"no pod has crossed the threshold: at least {least // MI} MiB left")
        time.sleep(0.002)
    return time.time()


def _ended(pid: int) -> float:
    """Block until a process has ended; returns when."""
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], 60)
    finally:
        os.close(descriptor)
    if not ended:
        raise TimeoutError("nobody ends the pod that eats the memory")
    return time.time()


async def _is_well(stand: Stand) -> bool:
    node = await stand.api.get(NODES, NODE)
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    return conditions.get("MemoryPressure") == "False"


ENDED, REPORTED = "crossing -> container ended", "crossing -> its end shown"


async def crossings(stand: Stand, rounds: int) -> dict[str, list[float]]:
    """Seconds by quantity; the agent runs, with :func:`settings`."""
    runtime = RemoteRuntime(stand.agent_runtime.endpoint)
    await runtime.connect(20)
    group = "/kubepods" if stand.program else f"{CGROUP_ROOT}/kubepods"
    ends: dict[str, asyncio.Future[float]] = {}

    def reported(kind: str, obj: JSON) -> None:
        waiting = ends.get(obj["metadata"]["name"])
        # a Go kubelet reports a pod that exits with 0 on SIGTERM as Succeeded, though evicted
        over = (obj.get("status") or {}).get("phase") in TERMINAL
        if over and waiting is not None and not waiting.done():
            waiting.set_result(time.time())

    stand.pods.observers.append(reported)
    found: dict[str, list[float]] = defaultdict(list)
    try:
        for round_ in range(rounds):
            name = f"eater{round_}"
            ends[name] = asyncio.get_running_loop().create_future()
            crossed = asyncio.create_task(asyncio.to_thread(_crossed, group))
            await stand.api.create(PODS, eater(name), NAMESPACE)
            await stand.pods.until(name, READY)
            (pid,) = await main_processes(runtime, [_container(stand, name)])
            ended = await asyncio.to_thread(_ended, pid)
            try:
                began = await crossed
            except TimeoutError as error:
                raise TimeoutError(f"{error}; {json.dumps(stand.pods.latest[name])}") from error
            found[ENDED].append(ended - began)
            async with asyncio.timeout(60):
                found[REPORTED].append(await ends[name] - began)
            await stand.api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
            await stand.pods.until(name, "gone")
            async with asyncio.timeout(120):
                # neither the cgroup nor the node announces that it has recovered: poll
                while not await _is_well(stand) or _left(group) < 2 * THRESHOLD - 50 * MI:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
    finally:
        stand.pods.observers.remove(reported)
        await runtime.close()
    return found


def _container(stand: Stand, name: str) -> str:
    entries = stand.pods.latest[name]["status"]["containerStatuses"]
    return str(entries[0]["containerID"]).partition("://")[2]
