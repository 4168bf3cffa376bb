"""The floor: the CRI calls and API writes that a pod's life needs, made without an agent.

Nothing is checked, cached, retried or recorded; the caller chooses how many pods are worked on at
once, so that the best number can be taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.manifests import (
    CONTAINER,
    NAMESPACE,
    as_pod,
    container_config,
    manifest,
    sandbox_config,
    status_patch,
)
from bench.watching import READY, REMOVED, SUCCEEDED, Watching
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.generated import api_pb2 as cri

PATIENCE = 20.0
INTO_WAIT = 0.1
"""Seconds from a shell's last child to its `wait`."""
_TERM = 1 << (signal.SIGTERM - 1)


async def main_processes(runtime: RemoteRuntime, containers: Sequence[str]) -> list[int]:
    """The host process ids of containers' main processes, once they handle SIGTERM.

    Before that they would miss it: signals without a handler are ignored by the first process of a
    namespace, and a shell that is not waiting yet reacts late.

    Raises:
        TimeoutError: one does not handle it.
    """
    pids = [await _main_process(runtime, container) for container in containers]
    async with asyncio.timeout(PATIENCE):
        # a process does not announce that it has set a handler
        while not all(_listens(pid) for pid in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(INTO_WAIT)
    return pids


async def _main_process(runtime: RemoteRuntime, container: str) -> int:
    answer = await runtime.container_status(container, verbose=True)
    return int(json.loads(answer.info["info"])["pid"])


def _listens(pid: int) -> bool:
    """Whether a shell has set its trap and started what it waits for."""
    if not Path(f"/proc/{pid}/task/{pid}/children").read_text().strip():
        return False
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) & _TERM)
    return False


NODE = "floor"
"""No agent has this name."""
GRACE = 30


@dataclass(slots=True)
class RawPod:
    """A pod made by raw calls."""

    pod: Pod
    sandbox: str = ""
    container: str = ""
    ip: str = ""


class Floor:
    """Starts and ends pods with raw calls on a containerd of its own."""

    def __init__(
        self, api: KubeApi, watching: Watching, runtime: RemoteRuntime, directory: Path
    ) -> None:
        self._api = api
        self._watching = watching
        self._runtime = runtime
        self._directory = directory
        self.pods: dict[str, RawPod] = {}
        self.parallel = 4
        """Pods worked on at once."""

    async def create(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Start pods: for each, the times of the API's response and of Ready."""
        gate = asyncio.Semaphore(self.parallel)

        async def one(name: str) -> tuple[float, float]:
            self._watching.forget(name)
            raw = RawPod(as_pod(await self._api.create(PODS, manifest(name, NODE), NAMESPACE)))
            answered = time.time()
            self.pods[name] = raw
            async with gate:
                await self._run(raw)
            return answered, await self._watching.until(name, READY)

        return list(await asyncio.gather(*(one(name) for name in names)))

    async def settled(self, names: Sequence[str]) -> list[int]:
        """Wait until the containers handle a stop signal; returns their process ids."""
        containers = [self.pods[name].container for name in names]
        return await main_processes(self._runtime, containers)

    async def delete(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Delete running pods: for each, the times of the API's response and of the end."""
        gate = asyncio.Semaphore(self.parallel)

        async def one(name: str) -> tuple[float, float]:
            raw = self.pods[name]
            await self._api.delete(PODS, name, NAMESPACE)
            answered = time.time()
            async with gate:
                await self._runtime.stop_container(raw.container, GRACE)
                await self._runtime.stop_pod_sandbox(raw.sandbox)
                await self._write(raw, "Succeeded")
                await self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
            return answered, await self._watching.until(name, REMOVED)

        return list(await asyncio.gather(*(one(name) for name in names)))

    async def exit(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Have containers exit by themselves: for each, the times of its exit and of Succeeded.

        Needs a runtime with events.
        """
        by_container = {self.pods[name].container: self.pods[name] for name in names}
        pids = await self.settled(names)
        listening = asyncio.Event()
        writer = asyncio.create_task(self._write_exits(by_container, listening))
        await listening.wait()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        ends = [await self._watching.until(name, SUCCEEDED) for name in names]
        await writer
        return [
            (await self._finished_at(self.pods[name].container), end)
            for name, end in zip(names, ends, strict=True)
        ]

    async def remove(self, names: Sequence[str]) -> None:
        """Remove what is left of pods, in the runtime and in the API."""
        gate = asyncio.Semaphore(self.parallel)

        async def one(name: str) -> None:
            raw = self.pods.pop(name)
            async with gate:
                await self._runtime.stop_pod_sandbox(raw.sandbox)
                await self._runtime.remove_pod_sandbox(raw.sandbox)
            if name in self._watching.latest:
                await self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
                await self._watching.until(name, REMOVED)

        await asyncio.gather(*(one(name) for name in names))

    async def _run(self, raw: RawPod) -> None:
        """RunPodSandbox to Running; the first status is written while the sandbox is created."""
        pod, runtime = raw.pod, self._runtime
        sandbox = sandbox_config(pod, self._directory)
        logs = Path(sandbox.log_directory) / CONTAINER
        logs.mkdir(parents=True, exist_ok=True)
        pending = asyncio.create_task(self._write(raw, "Pending"))
        raw.sandbox = await runtime.run_pod_sandbox(sandbox, "")
        answer = await runtime.pod_sandbox_status(raw.sandbox)
        raw.ip = answer.status.network.ip
        config = container_config(pod, self._directory)
        raw.container = await runtime.create_container(raw.sandbox, config, sandbox)
        await runtime.start_container(raw.container)
        await runtime.container_status(raw.container)
        await pending
        await self._write(raw, "Running")

    async def _write(self, raw: RawPod, phase: str) -> None:
        patch = status_patch(raw.pod, phase, raw.container, raw.ip)
        await self._api.patch(PODS, raw.pod.name, patch, NAMESPACE, subresource="status")

    async def _write_exits(self, expected: dict[str, RawPod], listening: asyncio.Event) -> None:
        """Write each exit to the API as the runtime reports it."""
        left = set(expected)
        writes: list[asyncio.Task[None]] = []
        asyncio.get_running_loop().call_later(0.3, listening.set)
        async for event in self._runtime.get_container_events():
            ended = event.container_event_type == cri.CONTAINER_STOPPED_EVENT
            if ended and event.container_id in left:
                left.discard(event.container_id)
                write = self._write(expected[event.container_id], "Succeeded")
                writes.append(asyncio.create_task(write))
            if not left:
                break
        await asyncio.gather(*writes)

    async def _finished_at(self, container: str) -> float:
        answer = await self._runtime.container_status(container)
        return answer.status.finished_at / 1e9


Step = Callable[[Sequence[str]], Coroutine[Any, Any, list[tuple[float, float]]]]
"""A measured step on pods: for each, the times of its beginning and its end."""
