"""The test stand: two private containerds, an API server and the agent.

One containerd is for the agent, the other for the floor, so that neither sees or disturbs the
other's pods; the API server is shared. Each is a process of its own.
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
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.floor import NODE as FLOOR_NODE
from bench.manifests import NAMESPACE
from bench.server import ApiServer, embedded, environment
from bench.watching import NODES, Watching
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import NotFound
from tools.env.containerd import Containerd, programs
from tools.env.kubectl import kubectl
from tools.env.ports import free_port
from tools.env.process import Daemon
from tools.env.sweep import remove_cgroup, remove_log_links, unmount

NODE = "bench"
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.e+]+)$")


@dataclass(slots=True)
class Stand:
    """Everything that runs, and how to inspect it."""

    directory: Path
    agent_runtime: Containerd
    floor_runtime: Containerd
    server: ApiServer
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
        """The API server's process; raises RuntimeError if it is not ours or has ended."""
        if self.server.process is None:
            raise RuntimeError("the bench did not start the API server")
        return _pid(self.server.process)

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
                    [self.program.absolute()]  # it starts in a directory of its own
                    if self.program
                    else [
                        *(sys.executable, "-m", "kubeletpy.cli.main", "run"),
                        "--keep-kernel-settings",
                        f"--device-plugins-dir={self.root_dir}/device-plugins",
                    ]
                ),
                f"--kubeconfig={kubeconfig or self.server.node}",
                f"--config={self.directory / 'kubelet.json'}",
                f"--root-dir={self.root_dir}",
                f"--hostname-override={NODE}",
            ],
            environment(),
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
        """CRI calls and API requests by kind until now.

        Where the API server counts requests itself, those are of all its clients, the bench's
        creations and deletions included. CRI calls of another agent are not known: that one does
        not show them without a client certificate.
        """
        requests: dict[str, float] = dict(self.server.requests())
        if self.program:
            return requests
        url = f"http://127.0.0.1:{self.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        desired = ["kubelet_runtime_operations_total"]
        if not self.server.counts:
            desired.append("rest_client_requests_total")
        found: dict[str, float] = {}
        for line in text.splitlines():
            match = _SAMPLE.match(line)
            if match and match[1] in desired:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                kind = labels.get("operation_type") or f"HTTP {labels.get('method')}"
                found[kind] = found.get(kind, 0) + float(match[3])
        return found | requests


@asynccontextmanager
async def make_stand(
    generation: int,
    *,
    floor: bool = True,
    config: Callable[[Path], JSON] = lambda _: {},
    program: Path | None = None,
    prefix: int = 24,
    server: ApiServer | None = None,
) -> AsyncIterator[Stand]:
    """Start everything but the agent; everything is removed at the end.

    Args:
        generation: of containerd.
        floor: whether the floor's containerd is also needed.
        config: additional KubeletConfiguration fields, given the stand's directory.
        program: an agent other than ours.
        prefix: of the pod networks' addresses.
        server: a running API server; by default an embedded one is started.
    """
    directory = Path(tempfile.mkdtemp(prefix="kpb-", dir="/tmp"))
    binaries = programs(generation)
    runtimes = [Containerd(directory / name, binaries, prefix=prefix) for name in ("a", "f")]
    agent = Daemon("agent", directory)
    servers = ExitStack()
    try:
        if server is None:
            server = await asyncio.to_thread(
                servers.enter_context, embedded(directory / "api", NODE)
            )
        for runtime in runtimes if floor else runtimes[:1]:
            await asyncio.to_thread(_start_runtime, runtime)
        async with asyncio.TaskGroup() as group, _client(server) as client:
            stand = Stand(
                directory=directory,
                agent_runtime=runtimes[0],
                floor_runtime=runtimes[1],
                server=server,
                agent_process=agent,
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
        servers.close()
        await asyncio.to_thread(_remove, directory, runtimes, agent, program is not None)


@asynccontextmanager
async def _client(server: ApiServer) -> AsyncIterator[KubeClient]:
    """A client as administrator, once the API admits pods of the floor's node."""
    client = await KubeClient.from_kubeconfig(str(server.admin), qps=0)
    try:
        if server.counts:
            # its controllers create the service account, and delete pods of nodes without a Node
            wait = "wait", "--for=create", "serviceaccount/default", f"--namespace={NAMESPACE}"
            await asyncio.to_thread(kubectl("new").run, server.admin, *wait, "--timeout=90s")
            await client.create(NODES, {"metadata": {"name": FLOOR_NODE}})
        yield client
    finally:
        if server.counts:
            for node in (FLOOR_NODE, NODE):
                with suppress(NotFound):
                    await client.delete(NODES, node)
        await client.close()


CGROUP_ROOT = f"/kpb-agent-{os.getpid()}"
"""Separate from the pods of any other agent on this machine."""


def _start_runtime(runtime: Containerd) -> None:
    runtime.start()
    runtime.import_images()


def _remove(directory: Path, runtimes: list[Containerd], agent: Daemon, foreign: bool) -> None:
    agent.stop()
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
        # A Go kubelet requires an existing cgroup root; without one its pods are in /kubepods.
        **({} if stand.program else {"cgroupRoot": CGROUP_ROOT}),
        **more,
    }
    (stand.directory / "kubelet.json").write_text(json.dumps(document))


def _pid(process: Daemon) -> int:
    pid = process.pid
    if pid is None:
        raise RuntimeError(f"{process.name} does not run any more:\n{process.log_tail()}")
    return pid
