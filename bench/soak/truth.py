"""Compares each status in the API with the runtime's state, as soon as the API shows it.

- a pod whose object was deleted has nothing running, unless it was removed by force;
- an exit code that is shown is the one recorded by the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import grpc

from bench.soak.history import exits_shown
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import CONFIG_MIRROR
from kubeletpy.remote.generated import api_pb2 as cri
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime

AT_ONCE = 2
_UID = "io.kubernetes.pod.uid"


class Truth:
    """Takes every change of a pod; :meth:`close` waits for pending lookups."""

    def __init__(self, runtime: Containerd) -> None:
        self._socket = runtime.socket
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._requested: set[str] = set()
        self.forced: set[str] = set()
        """Uids of the pods that were removed without the node's consent."""
        self.violations: list[str] = []
        self.compared = 0

    def take(self, kind: str, obj: JSON) -> None:
        """One event of a watch."""
        meta = obj["metadata"]
        if CONFIG_MIRROR in (meta.get("annotations") or {}):
            return
        if kind == "DELETED" and meta["uid"] not in self.forced:
            self._check(partial(self._absent, meta["name"], meta["uid"]))
        for container, code in exits_shown(obj):
            if container not in self._requested:
                self._requested.add(container)
                self._check(partial(self._exit, meta["name"], container, code))

    async def close(self) -> None:
        """Wait for pending lookups."""
        await asyncio.gather(*self._tasks)

    def _check(self, check: Callable[[], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._limited(check))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _limited(self, check: Callable[[], None]) -> None:
        async with self._limit:
            await asyncio.to_thread(check)

    def _absent(self, name: str, uid: str) -> None:
        desired = cri.ContainerFilter(label_selector={_UID: uid})
        request = cri.ListContainersRequest(filter=desired)
        try:
            with RawRuntime(self._socket) as raw:
                found = raw.runtime.ListContainers(request, timeout=5).containers
        except grpc.RpcError:
            return  # the runtime is down and cannot answer
        runs = [each.metadata.name for each in found if each.state == cri.CONTAINER_RUNNING]
        if runs:
            self.violations.append(f"pod {name} was deleted from the API, but {runs} run")

    def _exit(self, name: str, container: str, code: int) -> None:
        try:
            with RawRuntime(self._socket) as raw:
                found = raw.container(container)
        except grpc.RpcError:
            return  # removed by now, or the runtime is down
        self.compared += 1
        if found.state != cri.CONTAINER_EXITED or found.exit_code != code:
            self.violations.append(
                f"pod {name} shows exit code {code} of {found.metadata.name}, "
                f"the runtime reports {found.exit_code} (state {found.state})"
            )
