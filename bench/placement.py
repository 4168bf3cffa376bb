"""``python -m bench.placement``: cost of assigning a machine's resources to a pod.

Measures the admission of a pod with 8 devices, 8 exclusive CPUs and memory. The machine has 2
sockets, 128 CPUs and 8 NUMA nodes, simulated by files like those of its sysfs, and already runs
other pods. Also measures List of the pod resources API with 110 pods, and the cost of 10 device
plugins with nothing to report. No runtime.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.results import quantile
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.plugin import over_socket
from kubeletpy.resources.placement.machine import read_machine
from kubeletpy.resources.placement.managers import CpuManager, MemoryManager
from kubeletpy.resources.placement.model import AllocationRefused, Policy
from kubeletpy.resources.placement.options import CpuOptions
from kubeletpy.resources.placement.state import NodeMemory, Table
from kubeletpy.resources.placement.static_cpus import StaticCpus
from kubeletpy.resources.placement.static_memory import StaticMemory
from kubeletpy.resources.placement.topology_manager import TopologyManager
from kubeletpy.server.pod_resources import answers
from tests.unit.resources.devices.plugins import SimPlugin
from tests.unit.resources.placement.machines import machine, pod_of, sized, write_sysfs

GPU, PLUGINS, IDLE_S = "vendor.example/gpu", 10, 20.0
MEMORY = 64 << 30
"""Bytes of each NUMA node."""


@dataclass(slots=True)
class Node:
    """The managers that assign the machine's resources."""

    devices: DeviceManager
    cpus: CpuManager
    memory: MemoryManager
    topology: TopologyManager
    users: set[str]


@asynccontextmanager
async def node(root: Path, policy: Policy, gpus: int) -> AsyncIterator[Node]:
    """The machine with one device plugin."""
    shape = machine(sockets=2, nodes=4, cores=8, threads=2, caches=1)
    write_sysfs(root / "sys", shape, MEMORY)
    seen = read_machine(root / "sys")
    where = {f"gpu-{n:03}": n % len(seen.nodes) for n in range(gpus)}
    plugin, users = SimPlugin(*where, nodes=where), set[str]()
    metrics = Metrics()
    devices = DeviceManager(
        root / "device-plugins",
        metrics.devices,
        nodes=tuple(seen.nodes),
        pod_runs=lambda uid: False,
        is_active=lambda uid: True,
        node_changed=lambda: None,
        pod_changed=lambda uid: None,
        open_plugin=lambda socket, resource: cast(Any, plugin),
        listen=False,
    )
    cpus = CpuManager(
        StaticCpus(seen.cpus, frozenset({0, 64}), CpuOptions()), root, metrics.placement
    )
    nodes = {
        n: NodeMemory(0, {"memory": Table(of.memory, 0, of.memory, 0, of.memory)}, (n,))
        for n, of in seen.nodes.items()
    }
    memory = MemoryManager(StaticMemory(nodes), root, metrics.placement)
    topology = TopologyManager(
        (devices, cpus, memory),
        tuple(seen.nodes),
        policy,
        metrics.placement,
        users=lambda: users,
    )
    (root / "device-plugins").mkdir()
    await devices.start()
    await cpus.start()
    await memory.start()
    await devices.plugins.register(GPU, "socket")
    await asyncio.sleep(0.2)
    yield Node(devices, cpus, memory, topology, users)
    for each in (devices, cpus, memory):
        await each.close()


def requests(uid: str, cpus: int, gpus: int) -> Pod:
    """A Guaranteed pod."""
    container = sized("main", str(cpus), f"{cpus}Gi")
    for amounts in container["resources"].values():
        amounts[GPU] = str(gpus)
    return pod_of(container, uid=uid)


async def admission(policy: Policy, rounds: int) -> None:
    """Pods come and go one after another among others of many sizes."""
    deciding, settling = [], []
    with tempfile.TemporaryDirectory(prefix="kubeletpy-bench-") as directory:
        async with node(Path(directory), policy, 128) as of:
            rng = random.Random(7)
            for number in range(10):
                pod = requests(f"other-{number}", rng.randint(1, 8), rng.randint(1, 8))
                of.users.add(pod.uid)
                try:
                    if settle := of.topology.admit(pod):
                        await settle()
                except AllocationRefused:
                    of.users.discard(pod.uid)
            for number in range(rounds):
                pod = requests(f"pod-{number}", 8, 8)
                of.users.add(pod.uid)
                begun = time.thread_time()
                settle = of.topology.admit(pod)
                deciding.append(time.thread_time() - begun)
                assert settle is not None
                begun = time.perf_counter()
                await settle()
                settling.append(time.perf_counter() - begun)
                of.users.discard(pod.uid)
    print(_line(f"{policy}: a pod with 8 devices gets its place (aim: under 5)", deciding))
    print(_line(f"{policy}: the plugin's answers and three files on the disk", settling))


async def listing(rounds: int) -> None:
    """List with 110 pods, each with devices, CPUs and memory as far as available."""
    took, size = [], 0
    with tempfile.TemporaryDirectory(prefix="kubeletpy-bench-") as directory:
        async with node(Path(directory), Policy.BEST_EFFORT, 880) as of:
            pods = [requests(f"pod-{number}", 1, 8) for number in range(110)]
            for pod in pods:
                of.users.add(pod.uid)
                if settle := of.topology.admit(pod):
                    await settle()
            claims: Any = _NoClaims()
            supplied = answers.NodeAllocations(of.devices, of.cpus, of.memory, claims)
            for _ in range(rounds):
                begun = time.thread_time()
                of.topology.release()
                size = len(answers.list_v1(pods, supplied).SerializeToString())
                took.append(time.thread_time() - begun)
    print(_line(f"List of 110 pods with 880 devices, {size >> 10} KiB (aim: under 10)", took))


class _NoClaims:
    def container_claims(self, pod: Pod, container: Any) -> tuple[()]:
        return ()


async def idle() -> None:
    """CPU used by this process with plugins connected, and without."""
    with tempfile.TemporaryDirectory(prefix="kubeletpy-bench-") as directory:
        root, registered = Path(directory), asyncio.Event()

        def notified() -> None:
            if len(made.counts({}).capacity) == PLUGINS:
                registered.set()

        made = DeviceManager(
            root,
            Metrics().devices,
            nodes=(0,),
            pod_runs=lambda uid: False,
            is_active=lambda uid: True,
            node_changed=notified,
            pod_changed=lambda uid: None,
            open_plugin=over_socket,
        )
        await made.start()
        run = asyncio.create_task(made.plugins.run())
        without = await _cpu()
        async with AsyncExitStack() as stack:
            for number in range(PLUGINS):
                await stack.enter_async_context(_plugin(root / f"p{number}", root, number))
            await registered.wait()
            await asyncio.sleep(2)  # their first lists
            having = await _cpu()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await made.close()
    print(f"idle: {without:.2f} ms of CPU a second without plugins, {having:.2f} ms with {PLUGINS}")


async def _cpu() -> float:
    begun = time.process_time()
    await asyncio.sleep(IDLE_S)
    return (time.process_time() - begun) / IDLE_S * 1000


@asynccontextmanager
async def _plugin(directory: Path, sockets: Path, number: int) -> AsyncIterator[None]:
    await asyncio.to_thread(_prepare, directory)
    parts = ["-m", "tests.device_plugin", str(directory), f"--sockets={sockets}"]
    parts += [f"--resource=vendor.example/dev{number}", f"--endpoint=plugin{number}.sock"]
    process = await asyncio.create_subprocess_exec(sys.executable, *parts)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def _prepare(directory: Path) -> None:
    directory.mkdir()
    (directory / "devices.json").write_text('{"d0": "Healthy", "d1": "Healthy"}')


def _line(what: str, seconds: list[float]) -> str:
    p50, p95 = (quantile(seconds, q) * 1000 for q in (0.5, 0.95))
    return f"{what}: p50 {p50:.2f} ms, p95 {p95:.2f} ms ({len(seconds)} samples)"


async def run(rounds: int) -> None:
    """Run everything."""
    for policy in (Policy.SINGLE_NUMA_NODE, Policy.RESTRICTED, Policy.BEST_EFFORT):
        await admission(policy, rounds)
    await listing(rounds)
    await idle()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.placement")
    parser.add_argument("--rounds", type=int, default=100)
    supplied = parser.parse_args()
    asyncio.run(run(supplied.rounds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
