"""Simulated CSI drivers: what they have staged and published outlives them and the agents.

A driver does one call of a volume after the other, as drivers do; a call that was begun goes on to
its end, whoever gave up waiting. What must never be asked of a driver is a violation, told when it
is done.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from kubeletpy.host.mount_table import MountPoint
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import csi_pb2 as csi
from tests.sim.history import History
from tests.sim.loop import spawn
from tests.sim.records import Container, Sandbox
from tests.sim.runtime import SimRuntime
from tests.sim.storage import Storage

Rpc = csi.NodeServiceCapability.RPC

FINAL = tuple(
    code
    for code in Code
    if code
    not in (
        Code.OK,
        Code.CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.UNAVAILABLE,
        Code.RESOURCE_EXHAUSTED,
        Code.ABORTED,
    )
)
UNCERTAIN = (
    Code.CANCELLED,
    Code.DEADLINE_EXCEEDED,
    Code.UNAVAILABLE,
    Code.RESOURCE_EXHAUSTED,
    Code.ABORTED,
)
DATA = "data"


class Refused(Exception):
    """A call ends with a status."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class SimDriver:
    """One driver on the node."""

    def __init__(
        self,
        name: str,
        root: Path,
        rng: random.Random,
        history: History,
        *,
        storage: Storage,
        runtime: SimRuntime,
        stages: bool,
    ) -> None:
        self.name = name
        self.stages = stages
        self.staged: dict[str, str] = {}
        """Handle -> staging path."""
        self.published: dict[str, str] = {}
        """Target path -> handle."""
        self.sizes: dict[str, int] = {}
        self.faults = 0.0
        """Share of calls that fail."""
        self.slow = 0.0
        """Share of calls that take long."""
        self.up = False
        self.calls: list[str] = []
        self._healthy = asyncio.Event()
        self._healthy.set()
        self._root = root
        self._storage = storage
        self._runtime = runtime
        self._rng = rng
        self._history = history
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._under_way: set[asyncio.Future[Any]] = set()
        runtime.observers.append(self._runtime_changed)

    @property
    def socket(self) -> Path:
        """Of its registration."""
        return self._root / "kubelet" / "plugins_registry" / f"{self.name}.sock"

    # -- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """It comes, or comes again."""
        if self.up:
            return
        self._history.note("driver", f"{self.name} starts")
        self.up = True
        self.socket.parent.mkdir(0o750, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        os.mknod(self.socket, 0o600 | stat.S_IFSOCK)

    def die(self, *, clean: bool) -> None:
        """It is gone; its mounts stay. ``clean``: its registration socket goes with it."""
        if not self.up:
            return
        self._history.note("driver", f"{self.name} dies")
        self.up = False
        if clean:
            self.socket.unlink(missing_ok=True)
        for future in list(self._under_way):
            if not future.done():
                future.set_exception(Refused(Code.UNAVAILABLE, "connection lost"))

    def hang(self) -> None:
        """From now on no call is answered, until it heals."""
        self._history.note("driver", f"{self.name} hangs")
        self._healthy.clear()

    def heal(self) -> None:
        """It works; calls that hung are answered late."""
        self.faults = self.slow = 0.0
        self._healthy.set()
        self.start()

    # -- calls ----------------------------------------------------------------------------------

    async def ask(self, method: str, request: Any) -> Message:
        """Answer a call. Raises Refused."""
        if not self.up:
            await asyncio.sleep(0.001)
            raise Refused(Code.UNAVAILABLE, "connection refused")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._under_way.add(future)

        def done(task: asyncio.Task[Message]) -> None:
            self._under_way.discard(future)
            error = None if task.cancelled() else task.exception()
            if future.done() or task.cancelled():
                return
            if error is None:
                future.set_result(task.result())
            else:
                future.set_exception(error)

        spawn(self._work(method, request)).add_done_callback(done)
        return await future

    async def _work(self, method: str, request: Any) -> Message:
        handle = getattr(request, "volume_id", "")
        if not handle:
            await self._takes()
            return self._ask_node(method)
        async with self._locks[handle]:
            failing = self._rng.random() < self.faults
            after = failing and self._rng.random() < 0.4
            await self._takes()
            await self._healthy.wait()
            if failing and not after:
                raise Refused(self._rng.choice((*FINAL, *UNCERTAIN)), f"injected: {method} failed")
            answer = self._do(method, request)
            if after:
                raise Refused(self._rng.choice(UNCERTAIN), f"injected: {method} done, answer lost")
            return answer

    async def _takes(self) -> None:
        await asyncio.sleep(self._rng.choice((0.001, 0.01, 0.1)))
        if self._rng.random() < self.slow:
            await asyncio.sleep(self._rng.choice((3.0, 30.0, 150.0)))

    def _ask_node(self, method: str) -> Message:
        if method == "NodeGetInfo":
            return csi.NodeGetInfoResponse(node_id=f"id-of-{self.name}")
        assert method == "NodeGetCapabilities", method
        kinds = [Rpc.EXPAND_VOLUME, Rpc.GET_VOLUME_STATS]
        if self.stages:
            kinds.append(Rpc.STAGE_UNSTAGE_VOLUME)
        made = [csi.NodeServiceCapability(rpc=Rpc(type=kind)) for kind in kinds]
        return csi.NodeGetCapabilitiesResponse(capabilities=made)

    def _do(self, method: str, request: Any) -> Message:
        self.calls.append(f"{method} {request.volume_id}")
        self._history.note("driver", f"{self.name} {method} {request.volume_id[:20]}")
        work = {
            "NodeStageVolume": self._stage,
            "NodePublishVolume": self._publish,
            "NodeUnpublishVolume": self._unpublish,
            "NodeUnstageVolume": self._unstage,
            "NodeExpandVolume": self._expand,
            "NodeGetVolumeStats": self._stats,
        }
        return work[method](request)

    def _stage(self, request: Any) -> Message:
        handle, path = request.volume_id, request.staging_target_path
        if not self._storage.attached(handle):
            self._broken(f"{handle} staged and not attached")
        if self.staged.get(handle, path) != path:
            self._broken(f"{handle} staged at {path} and {self.staged[handle]}")
        self.staged[handle] = path
        _mount(path)
        return csi.NodeStageVolumeResponse()

    def _publish(self, request: Any) -> Message:
        handle, target = request.volume_id, request.target_path
        if request.staging_target_path and handle not in self.staged:
            self._broken(f"{handle} published and not staged")
            raise Refused(Code.FAILED_PRECONDITION, "not staged")
        if self.published.get(target, handle) != handle:
            self._broken(f"{handle} published over {self.published[target]} at {target}")
        self.published[target] = handle
        _mount(target)
        return csi.NodePublishVolumeResponse()

    def _unpublish(self, request: Any) -> Message:
        target = request.target_path
        for container in self._runtime.running():
            if any(_inside(mount.host_path, target) for mount in container.config.mounts):
                self._broken(f"{target} unpublished under {container}")
        if self.published.pop(target, None) is not None:
            self._unmount(target)
        return csi.NodeUnpublishVolumeResponse()

    def _unstage(self, request: Any) -> Message:
        handle = request.volume_id
        for target, of in self.published.items():
            if of == handle:
                self._broken(f"{handle} unstaged while published at {target}")
        path = self.staged.pop(handle, None)
        if path is not None:
            self._unmount(path)
        return csi.NodeUnstageVolumeResponse()

    def _expand(self, request: Any) -> Message:
        if self.published.get(request.volume_path) != request.volume_id:
            self._broken(f"{request.volume_id} expanded at {request.volume_path}: not published")
        size = request.capacity_range.required_bytes
        self.sizes[request.volume_id] = max(size, self.sizes.get(request.volume_id, 0))
        return csi.NodeExpandVolumeResponse(capacity_bytes=size)

    def _stats(self, request: Any) -> Message:
        usage = csi.VolumeUsage(unit=csi.VolumeUsage.BYTES, total=1 << 30, used=1, available=2)
        return csi.NodeGetVolumeStatsResponse(usage=[usage])

    def _unmount(self, path: str) -> None:
        data = Path(path) / DATA
        if not data.exists():
            self._broken(f"the data at {path} was deleted")
        data.unlink(missing_ok=True)

    # -- what must never be -----------------------------------------------------------------------

    def _runtime_changed(self, what: str, whom: Container | Sandbox) -> None:
        if what != "start" or not isinstance(whom, Container):
            return
        for mount in whom.config.mounts:
            there = any(_inside(mount.host_path, target) for target in self.published)
            if self._mine(mount.host_path) and not there:
                self._broken(f"{whom} started without its volume {mount.host_path}")

    def _mine(self, path: str) -> bool:
        return "/kubernetes.io~csi/" in path and f"{self.name}-" in path

    def _broken(self, what: str) -> None:
        self._history.violated(f"{self.name}: {what}")

    def left(self) -> list[str]:
        """What is still there."""
        staged = [f"{self.name}: {handle} is staged" for handle in self.staged]
        return [*staged, *(f"{self.name}: {path} is published" for path in self.published)]

    def mounts(self) -> Iterator[MountPoint]:
        """As the kernel shows them."""
        for handle, path in self.staged.items():
            yield MountPoint(path, shared=False, device=f"{self.name}:{handle}", root="/")
        for path, handle in self.published.items():
            yield MountPoint(path, shared=False, device=f"{self.name}:{handle}", root="/")


def _mount(path: str) -> None:
    Path(path).mkdir(0o750, exist_ok=True)
    (Path(path) / DATA).touch()


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
