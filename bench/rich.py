"""``python -m bench.rich``: a feature-rich pod, from create to Ready and from delete to removal.

Two init containers, a sidecar, three containers with an exec readiness probe every second, five
volumes; alternating in the same run with the floor of its own raw CRI calls. The floor runs the
init containers one after the other, then the sidecar, then the three in parallel, each followed by
one successful ExecSync; it stops them in reverse order. Its volumes are plain directories.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.command import add_arguments, run
from bench.containers import main_processes
from bench.floor import GRACE
from bench.floor import NODE as RAW_NODE
from bench.manifests import NAMESPACE, as_pod, sandbox_config, status_patch
from bench.results import Results, Row
from bench.rich_pod import INIT, MAIN, PROBE, SIDECAR, container_config, manifest, shared_objects
from bench.server import ApiServer
from bench.stand import NODE, Stand, make_stand
from bench.usage import cpu_seconds
from bench.watching import READY, REMOVED
from kubeletpy.cli import agent_socket
from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.protocol import CONFIGMAPS, PODS, SECRETS
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.generated import api_pb2 as cri

_AIM = 1250, "value"
"""Half of what the Go kubelet needs, for start and end alike, in ms."""
EXIT_LOOK_S = 0.005
"""Seconds between two checks by the floor whether an init container has exited."""

_names = itertools.count(1)
Moments = tuple[float, float]


@dataclass(slots=True)
class RawRich:
    """One pod of the floor."""

    pod: Pod
    sandbox: str = ""
    containers: dict[str, str] = field(default_factory=dict)


class RichFloor:
    """Starts and ends the pod with raw calls."""

    def __init__(self, stand: Stand, runtime: RemoteRuntime, directory: Path) -> None:
        self._stand, self._runtime, self._directory = stand, runtime, directory

    async def create(self, name: str) -> tuple[RawRich, Moments]:
        """Start it: the pod, and the times of the API's response and of Ready."""
        created = await self._stand.api.create(PODS, manifest(name, RAW_NODE), NAMESPACE)
        answered = time.time()
        raw, runtime = RawRich(as_pod(created)), self._runtime
        pending = asyncio.create_task(self._write(raw, "Pending"))
        sandbox = sandbox_config(raw.pod, self._directory)
        for each in (*INIT, SIDECAR, *MAIN):
            (Path(sandbox.log_directory) / each).mkdir(parents=True, exist_ok=True)
        raw.sandbox = await runtime.run_pod_sandbox(sandbox, "")
        await runtime.pod_sandbox_status(raw.sandbox)
        for each in INIT:
            await self._ended(await self._start(raw, sandbox, each))
        await self._start(raw, sandbox, SIDECAR)
        await asyncio.gather(*(self._start_and_probe(raw, sandbox, each) for each in MAIN))
        await pending
        await self._write(raw, "Running")
        return raw, (answered, await self._stand.pods.until(name, READY))

    async def delete(self, raw: RawRich) -> Moments:
        """End it: the times of the API's response and of its end."""
        name, runtime = raw.pod.name, self._runtime
        await self._stand.api.delete(PODS, name, NAMESPACE)
        answered = time.time()
        await asyncio.gather(
            *(runtime.stop_container(raw.containers[each], GRACE) for each in MAIN)
        )
        await runtime.stop_container(raw.containers[SIDECAR], GRACE)
        await runtime.stop_pod_sandbox(raw.sandbox)
        await self._write(raw, "Succeeded")
        await self._stand.api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        end = await self._stand.pods.until(name, REMOVED)
        await runtime.remove_pod_sandbox(raw.sandbox)
        return answered, end

    async def _start(self, raw: RawRich, sandbox: cri.PodSandboxConfig, name: str) -> str:
        config = container_config(raw.pod, name, self._directory)
        container = await self._runtime.create_container(raw.sandbox, config, sandbox)
        raw.containers[name] = container
        await self._runtime.start_container(container)
        return container

    async def _start_and_probe(
        self, raw: RawRich, sandbox: cri.PodSandboxConfig, name: str
    ) -> None:
        container = await self._start(raw, sandbox, name)
        await self._runtime.container_status(container)
        answer = await self._runtime.exec_sync(container, PROBE, 5)
        assert answer.exit_code == 0, answer

    async def _ended(self, container: str) -> None:
        while True:
            status = (await self._runtime.container_status(container)).status
            if status.state == cri.CONTAINER_EXITED:
                return
            await asyncio.sleep(EXIT_LOOK_S)

    async def _write(self, raw: RawRich, phase: str) -> None:
        patch = status_patch(raw.pod, phase)
        await self._stand.api.patch(PODS, raw.pod.name, patch, NAMESPACE, subresource="status")


async def agent_round(
    stand: Stand, runtime: RemoteRuntime, name: str
) -> tuple[Moments, Moments, float]:
    """Run the pod through the agent; returns the times of its start and end, and the CPU seconds.

    The agent's work after the pod is removed, such as removing its containers, is not included.
    """
    spent = cpu_seconds(stand.agent_pid)
    await stand.api.create(PODS, manifest(name, NODE), NAMESPACE)
    answered = time.time()
    start = answered, await stand.pods.until(name, READY)
    status = stand.pods.latest[name]["status"]
    entries = [*status["containerStatuses"], status["initContainerStatuses"][-1]]
    ids = [entry["containerID"].partition("://")[2] for entry in entries]
    await main_processes(runtime, ids)
    await stand.api.delete(PODS, name, NAMESPACE)
    answered = time.time()
    end = answered, await stand.pods.until(name, REMOVED)
    return start, end, cpu_seconds(stand.agent_pid) - spent


async def measure(stand: Stand, rounds: int, timelines: Path | None) -> list[Row]:
    """Start and end beside the floor, and the agent's CPU per pod."""
    found: dict[str, list[float]] = defaultdict(list)
    runtimes = [RemoteRuntime(r.endpoint) for r in (stand.floor_runtime, stand.agent_runtime)]
    objects = list(zip((CONFIGMAPS, SECRETS), shared_objects(), strict=True))
    try:
        for runtime in runtimes:
            await runtime.connect(20)
        for resource, obj in objects:
            await stand.api.create(resource, obj, NAMESPACE)
        await stand.start_agent()
        floor = RichFloor(stand, runtimes[0], stand.directory / "raw")
        for number in range(rounds + 1):
            raw, create = await floor.create(f"raw-{next(_names)}")
            containers = [raw.containers[each] for each in (*MAIN, SIDECAR)]
            await main_processes(runtimes[0], containers)
            delete = await floor.delete(raw)
            name = f"rich-{next(_names)}"
            *ours, spent = await agent_round(stand, runtimes[1], name)
            if timelines is not None:
                _keep_timeline(stand, name, timelines)
            if number:  # the first one of each is slower
                for what, moments in zip(
                    ("floor create", "floor delete", "agent create", "agent delete"),
                    (create, delete, *ours),
                    strict=True,
                ):
                    found[what].append((moments[1] - moments[0]) * 1000)
                found["cpu"].append(spent * 1000)
        await stand.stop_agent()
    finally:
        for runtime in runtimes:
            await runtime.close()
        for resource, obj in objects:  # the API server may be used again
            with suppress(NotFound):
                await stand.api.delete(resource, obj["metadata"]["name"], NAMESPACE)
    return [
        Row("create -> Ready", 1, "ms", found["agent create"], found["floor create"], *_AIM),
        Row("delete -> removed", 1, "ms", found["agent delete"], found["floor delete"], *_AIM),
        Row("agent CPU per pod", 1, "ms", found["cpu"], aim=200, aim_on="value"),
    ]


def _keep_timeline(stand: Stand, name: str, directory: Path) -> None:
    socket = stand.directory / "kubelet" / agent_socket.SOCKET_NAME
    answer = agent_socket.get_json(socket, "pods", NAMESPACE, name, "timeline")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(answer, indent=1))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.rich", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--timelines", type=Path, metavar="DIR", help="keep each pod's timeline")
    supplied = parser.parse_args()

    async def rounds(program: Path | None, server: ApiServer | None) -> Results:
        results = Results(supplied.containerd, floor_parallel=1)
        async with make_stand(supplied.containerd, program=program, server=server) as stand:
            timelines = None if program else supplied.timelines
            results.rows += await measure(stand, supplied.rounds, timelines)
        return results

    return run(supplied, rounds)


if __name__ == "__main__":
    raise SystemExit(main())
