"""The test stand: two private containerds, the embedded API and the agent.

One containerd is for the agent, the other for the floor, so that neither sees or disturbs the
other's pods; the API is shared. Each is a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.api import READY
from bench.watching import NODES, Watching
from kubeletpy.api.types import JSON
from kubeletpy.kubeapi.client import KubeClient
from tools.env.containerd import Containerd, programs
from tools.env.ports import free_port
from tools.env.process import Daemon
from tools.env.sweep import remove_cgroup, remove_log_links, unmount
from tools.env.waiting import wait_until

NODE = "bench"
_ROOT = Path(__file__).resolve().parent.parent
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.e+]+)$")


@dataclass(slots=True)
class Stand:
    """Everything that runs, and how to inspect it."""

    directory: Path
    agent_runtime: Containerd
    floor_runtime: Containerd
    api_process: Daemon
    agent_process: Daemon
    api: KubeClient
    pods: Watching
    nodes: Watching
    health_port: int
    port: int
    program: Path | None = None
    """Another agent that takes the kubelet's flags, instead of ours."""

    @property
    def agent_pid(self) -> int:
        """The agent's process."""
        return _pid(self.agent_process)

    @property
    def api_pid(self) -> int:
        """The API's process."""
        return _pid(self.api_process)

    @property
    def root_dir(self) -> Path:
        """The agent's root directory."""
        return self.directory / "kubelet"

    @property
    def logs(self) -> Path:
        """The pods' log directories."""
        return self.directory / "logs"

    async def start_agent(self) -> float:
        """Start the agent; returns the seconds until the watch showed its node Ready."""
        self.nodes.forget(NODE)
        begun = time.time()
        await asyncio.to_thread(self.launch_agent)
        return await self.nodes.until(NODE, "Ready") - begun

    def launch_agent(self, kubeconfig: Path | None = None) -> None:
        """Start the agent's process without waiting for anything."""
        self.agent_process.start(
            [
                *(
                    [self.program]
                    if self.program
                    else [
                        *(sys.executable, "-m", "kubeletpy.cli.main", "run"),
                        "--keep-kernel-settings",
                        f"--device-plugins-dir={self.root_dir}/device-plugins",
                    ]
                ),
                f"--kubeconfig={kubeconfig or self.directory / 'api' / 'node.kubeconfig'}",
                f"--config={self.directory / 'kubelet.json'}",
                f"--root-dir={self.root_dir}",
                f"--hostname-override={NODE}",
            ],
            _environment(),
        )

    async def stop_agent(self) -> None:
        """Stop the agent and forget its node, so that the next start is a fresh one."""
        await asyncio.to_thread(self.agent_process.stop)
        await self.api.delete(NODES, NODE)
        await self.nodes.until(NODE, "gone")

    def configure(self, more: JSON) -> None:
        """Write the agent's configuration with additional fields, for its next start."""
        _write_config(self, more)

    def counters(self) -> dict[str, float]:
        """The agent's counters of CRI calls and API requests, by kind; empty for another agent.

        That one doesn't show them without a client certificate.
        """
        if self.program:
            return {}
        url = f"http://127.0.0.1:{self.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        wanted = ("kubelet_runtime_operations_total", "rest_client_requests_total")
        found: dict[str, float] = {}
        for line in text.splitlines():
            match = _SAMPLE.match(line)
            if match and match[1] in wanted:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                kind = labels.get("operation_type") or f"HTTP {labels.get('method')}"
                found[kind] = found.get(kind, 0) + float(match[3])
        return found


@asynccontextmanager
async def make_stand(
    generation: int,
    *,
    floor: bool = True,
    config: Callable[[Path], JSON] = lambda _: {},
    program: Path | None = None,
    prefix: int = 24,
) -> AsyncIterator[Stand]:
    """Start everything but the agent; everything is removed at the end.

    Args:
        generation: of containerd.
        floor: whether the floor's containerd is also needed.
        config: additional KubeletConfiguration fields, given the stand's directory.
        program: an agent other than ours.
        prefix: of the pod networks' addresses.
    """
    directory = Path(tempfile.mkdtemp(prefix="kpb-", dir="/tmp"))
    binaries = programs(generation)
    runtimes = [Containerd(directory / name, binaries, prefix=prefix) for name in ("a", "f")]
    processes = [Daemon(name, directory) for name in ("api", "agent")]
    try:
        for runtime in runtimes if floor else runtimes[:1]:
            await asyncio.to_thread(_start_runtime, runtime)
        async with asyncio.TaskGroup() as group, _api(directory, processes[0]) as client:
            stand = Stand(
                directory=directory,
                agent_runtime=runtimes[0],
                floor_runtime=runtimes[1],
                api_process=processes[0],
                agent_process=processes[1],
                api=client,
                pods=Watching(client),
                nodes=Watching(client, NODES),
                health_port=free_port(),
                port=free_port(),
                program=program,
            )
            stand.configure(config(directory))
            watches = [group.create_task(w.follow()) for w in (stand.pods, stand.nodes)]
            await stand.pods.started.wait()
            await stand.nodes.started.wait()
            try:
                yield stand
            finally:
                for watch in watches:
                    watch.cancel()
    finally:
        await asyncio.to_thread(_remove, directory, runtimes, processes, program is not None)


@asynccontextmanager
async def _api(directory: Path, process: Daemon) -> AsyncIterator[KubeClient]:
    data = directory / "api"
    process.start([sys.executable, "-m", "bench.api", data, NODE], _environment())
    ready = data / READY
    await asyncio.to_thread(wait_until, ready.exists, "the API", give_up=process.died)
    client = await KubeClient.from_kubeconfig(str(data / "admin.kubeconfig"), qps=0)
    try:
        yield client
    finally:
        await client.close()


CGROUP_ROOT = f"/kpb-agent-{os.getpid()}"
"""Separate from the pods of any other agent on this machine."""


def _start_runtime(runtime: Containerd) -> None:
    runtime.start()
    runtime.import_images()


def _remove(
    directory: Path, runtimes: list[Containerd], processes: list[Daemon], foreign: bool
) -> None:
    for process in reversed(processes):
        process.stop()
    left = [line for runtime in runtimes for line in runtime.remove()]
    left += [f"cgroup {path}" for path in remove_cgroup(CGROUP_ROOT, kill=True)]
    if foreign:
        remove_cgroup("/kubepods")
    remove_log_links(directory)
    for line in left:
        print(f"still there: {line}", file=sys.stderr)
    if not left:
        unmount(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _write_config(stand: Stand, more: JSON) -> None:
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": stand.agent_runtime.endpoint,
        "podLogsDir": str(stand.logs),
        "healthzPort": stand.health_port,
        "port": stand.port,
        "failSwapOn": False,
        "failCgroupV1": False,
        # the disk usage of this machine must not matter
        "evictionHard": {},
        "makeIPTablesUtilChains": False,
        # A Go kubelet wants an existing cgroup root; without one its pods are in /kubepods.
        **({} if stand.program else {"cgroupRoot": CGROUP_ROOT}),
        **more,
    }
    (stand.directory / "kubelet.json").write_text(json.dumps(document))


def _environment() -> dict[str, str]:
    paths = [str(_ROOT), str(_ROOT / "up"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # an installed agent has its bytecode; recompiling all modules doubles the startup time
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def _pid(process: Daemon) -> int:
    pid = process.pid
    if pid is None:
        raise RuntimeError(f"{process.name} does not run any more:\n{process.log_tail()}")
    return pid
