"""The same steps through the agent: the bench only sends API requests and watches."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence

from bench.floor import main_processes
from bench.manifests import NAMESPACE, manifest
from bench.stand import NODE
from bench.watching import READY, REMOVED, SUCCEEDED, Watching
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.remote.client import RemoteRuntime


class Subject:
    """Pods that the agent runs. ``runtime`` is only queried, never changed."""

    def __init__(self, api: KubeApi, watching: Watching, runtime: RemoteRuntime) -> None:
        self._api = api
        self._watching = watching
        self._runtime = runtime

    async def create(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Create pods: for each, the times of the API's response and of Ready."""

        async def one(name: str) -> tuple[float, float]:
            self._watching.forget(name)
            await self._api.create(PODS, manifest(name, NODE), NAMESPACE)
            answered = time.time()
            return answered, await self._watching.until(name, READY)

        return list(await asyncio.gather(*(one(name) for name in names)))

    async def settled(self, names: Sequence[str]) -> list[int]:
        """Wait until the containers handle a stop signal; returns their process ids."""
        containers = [self._container(name) for name in names]
        return await main_processes(self._runtime, containers)

    async def delete(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Delete running pods: for each, the times of the API's response and of the end."""

        async def one(name: str) -> tuple[float, float]:
            await self._api.delete(PODS, name, NAMESPACE)
            answered = time.time()
            return answered, await self._watching.until(name, REMOVED)

        return list(await asyncio.gather(*(one(name) for name in names)))

    async def exit(self, names: Sequence[str]) -> list[tuple[float, float]]:
        """Have containers exit by themselves: for each, the times of its exit and of Succeeded."""
        containers = [self._container(name) for name in names]
        pids = await self.settled(names)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        ends = [await self._watching.until(name, SUCCEEDED) for name in names]
        answers = [await self._runtime.container_status(container) for container in containers]
        starts = [answer.status.finished_at / 1e9 for answer in answers]
        return list(zip(starts, ends, strict=True))

    async def remove(self, names: Sequence[str]) -> None:
        """Delete what is left of pods, and wait until the agent has cleaned up after them."""
        left = [name for name in names if name in self._watching.latest]
        for name in left:
            await self._api.delete(PODS, name, NAMESPACE)
        for name in left:
            await self._watching.until(name, REMOVED)

    async def cleaned(self) -> None:
        """Wait until the agent has removed all dead sandboxes; TimeoutError names those left."""
        ends = time.monotonic() + 90
        # the runtime reports removals to nobody but the agent
        while left := await self._runtime.list_pod_sandbox():
            if time.monotonic() > ends:
                names = ", ".join(sorted(sandbox.metadata.name for sandbox in left))
                raise TimeoutError(f"sandboxes are not removed: {names}")
            await asyncio.sleep(0.2)

    def _container(self, name: str) -> str:
        entries = self._watching.latest[name]["status"]["containerStatuses"]
        return str(entries[0]["containerID"]).partition("://")[2]
