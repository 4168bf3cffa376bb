"""Simulated CSI drivers: what they have staged and published outlives them and the agents.

A driver does one call of a volume after the other, as drivers do. A call that was begun runs to its
end, even if the caller has given up waiting. A call that a driver must never receive is a
violation, recorded when it is made.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from kubeletpy.base.host.mount_table import MountPoint
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.resources.plugins.model import CSI
from tests.sim.history import History
from tests.sim.loop import spawn
from tests.sim.mounts import NodeMounts, inside
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
    """Ends a call with a gRPC status other than OK."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class SimDriver:
    """One driver on the node."""

    kind = CSI
    versions = ("1.0.0",)

    def __init__(
        self,
        name: str,
        root: Path,
        rng: random.Random,
        history: History,
        *,
        storage: Storage,
        runtime: SimRuntime,
        mounts: NodeMounts,
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
        self.health: csi.VolumeHealth | None = None
        """Health that the driver reports for every volume; None: it does not report health."""
        self.storage_health: csi.NodeGetStorageHealthResponse | None = None
        """Health that the driver reports for its storage; None: it does not report it."""
        self.calls: list[str] = []
        self._healthy = asyncio.Event()
        self._healthy.set()
        self._root = root
        self._storage = storage
        self._runtime = runtime
        self._mounts = mounts
        self._boots = 0
        self._contents: defaultdict[str, set[str]] = defaultdict(set)
        """Handle -> the directories that are in the volume."""
        self._reported: dict[str, set[str]] = {}
        """Path -> the directories that were in the volume when it was mounted there."""
        self._rng = rng
        self._history = history
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._under_way: set[asyncio.Future[Any]] = set()
        runtime.observers.append(self._runtime_changed)

    @property
    def socket(self) -> Path:
        """Path of the registration socket."""
        return self._root / "kubelet" / "plugins_registry" / f"{self.name}.sock"

    # -- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start or restart the driver."""
        if self.up:
            return
        self._history.note("driver", f"{self.name} starts")
        self.up = True
        self.socket.parent.mkdir(0o750, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        os.mknod(self.socket, 0o600 | stat.S_IFSOCK)

    def die(self, *, clean: bool) -> None:
        """Stop the driver's process; its mounts stay.

        ``clean``: its registration socket is removed too.
        """
        if not self.up:
            return
        self._history.note("driver", f"{self.name} dies")
        self.up = False
        if clean:
            self.socket.unlink(missing_ok=True)
        for future in list(self._under_way):
            if not future.done():
                future.set_exception(Refused(Code.UNAVAILABLE, "connection lost"))

    def machine_stops(self) -> None:
        """The machine goes down: no driver runs and nothing is mounted; volumes keep their data."""
        self.die(clean=False)
        self._boots += 1
        for path in (*self.published, *self.staged.values()):
            if Path(path).exists():
                self._hide(path)
        self.published.clear()
        self.staged.clear()

    def hang(self) -> None:
        """Answer no call from now on, until ``heal``."""
        self._history.note("driver", f"{self.name} hangs")
        self._healthy.clear()

    def heal(self) -> None:
        """End all faults, answer the calls that hung, and start the driver if it is down."""
        self.faults = self.slow = 0.0
        self._healthy.set()
        self.start()

    # -- calls ----------------------------------------------------------------------------------

    async def answer_call(self, method: str, request: Any) -> Message:
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
            return self._answer_node_call(method)
        boots = self._boots
        async with self._locks[handle]:
            failing = self._rng.random() < self.faults
            after = failing and self._rng.random() < 0.4
            await self._takes()
            await self._healthy.wait()
            if boots != self._boots:
                raise Refused(Code.UNAVAILABLE, "the machine has stopped")
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

    def _answer_node_call(self, method: str) -> Message:
        if method == "NodeGetInfo":
            return csi.NodeGetInfoResponse(node_id=f"id-of-{self.name}")
        if method == "NodeGetStorageHealth":
            assert self.storage_health is not None, "it has no such capability"
            return self.storage_health
        assert method == "NodeGetCapabilities", method
        kinds = [Rpc.EXPAND_VOLUME, Rpc.GET_VOLUME_STATS]
        if self.stages:
            kinds.append(Rpc.STAGE_UNSTAGE_VOLUME)
        if self.health is not None:
            kinds.append(Rpc.GET_VOLUME_HEALTH)
        if self.storage_health is not None:
            kinds.append(Rpc.GET_STORAGE_HEALTH)
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
            "NodeGetVolumeHealth": self._health_of,
        }
        return work[method](request)

    def _health_of(self, request: Any) -> Message:
        assert self.published[request.volume_publish_path] == request.volume_id
        staging = self.staged[request.volume_id] if self.stages else ""
        assert request.staging_target_path == staging
        return csi.NodeGetVolumeHealthResponse(volume_health=self.health)

    def _stage(self, request: Any) -> Message:
        handle, path = request.volume_id, request.staging_target_path
        if not self._storage.attached(handle):
            self._broken(f"{handle} staged and not attached")
        if self.staged.get(handle, path) != path:
            self._broken(f"{handle} staged at {path} and {self.staged[handle]}")
        self._mount(path, handle)
        self.staged[handle] = path
        return csi.NodeStageVolumeResponse()

    def _publish(self, request: Any) -> Message:
        handle, target = request.volume_id, request.target_path
        if self.stages and request.staging_target_path and handle not in self.staged:
            if not self._mounts.is_damaged(request.staging_target_path):
                self._broken(f"{handle} published and not staged")
            raise Refused(Code.FAILED_PRECONDITION, "not staged")
        if self.published.get(target, handle) != handle:
            self._broken(f"{handle} published over {self.published[target]} at {target}")
        others = [path for path, of in self.published.items() if of == handle and path != target]
        if others and self._storage.is_sole(handle):
            self._broken(f"{handle} is for one pod and published at {target} and {others}")
        if request.volume_capability.HasField("block"):
            _where_it_can_be(target).touch()
        else:
            self._mount(target, handle)
        self.published[target] = handle
        return csi.NodePublishVolumeResponse()

    def _unpublish(self, request: Any) -> Message:
        target = request.target_path
        for container in self._runtime.running():
            if any(inside(path, target) for path in self._mounts.uses(container)):
                self._broken(f"{target} unpublished under {container}")
        for bound in self._mounts.bound_inside(target):
            self._broken(f"{target} unpublished while a part of it is mounted at {bound}")
        if self.published.pop(target, None) is not None:
            self._unmount(target, request.volume_id)
        return csi.NodeUnpublishVolumeResponse()

    def _unstage(self, request: Any) -> Message:
        handle = request.volume_id
        for target, of in self.published.items():
            if of == handle:
                self._broken(f"{handle} unstaged while published at {target}")
        path = self.staged.pop(handle, None)
        if path is not None:
            self._unmount(path, handle)
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

    def _mount(self, path: str, handle: str) -> None:
        _where_it_can_be(path).mkdir(0o750, exist_ok=True)
        (Path(path) / DATA).touch()
        self._reported[path] = self._contents[handle]
        for name in self._contents[handle]:
            (Path(path) / name).mkdir(parents=True, exist_ok=True)

    def _unmount(self, path: str, handle: str) -> None:
        """Hide the volume's data at this path; a violation if some of it was deleted."""
        if Path(path).is_file():
            Path(path).unlink()
            return
        there = _directories(path)
        if not (Path(path) / DATA).exists() or not self._reported.pop(path, set()) <= there:
            self._broken(f"the data at {path} was deleted")
        self._contents[handle] = self._contents[handle] | there
        self._hide(path)

    def _hide(self, path: str) -> None:
        if Path(path).is_file():
            return
        for name in _directories(path):
            shutil.rmtree(Path(path) / name, ignore_errors=True)
        (Path(path) / DATA).unlink(missing_ok=True)

    def has_mounted(self, path: str) -> bool:
        """Whether this driver has mounted a volume at the path."""
        return path in self.published or path in self.staged.values()

    def lose(self, path: str) -> None:
        """Undo the driver's mount at the path, behind the driver's back."""
        handle = self.published.pop(path, "")
        if not handle:
            handle = next(each for each, at in self.staged.items() if at == path)
            del self.staged[handle]
        if Path(path).is_file():
            return
        self._unmount(path, handle)

    # -- what must never be -----------------------------------------------------------------------

    def _runtime_changed(self, what: str, whom: Container | Sandbox) -> None:
        if what != "start" or not isinstance(whom, Container):
            return
        for path in self._mounts.uses(whom):
            there = any(inside(path, target) for target in self.published)
            if self._mine(path) and not there:
                self._broken(f"{whom} started without its volume {path}")

    def _mine(self, path: str) -> bool:
        places = ("/kubernetes.io~csi/", "/volumeDevices/", "/volume-subpaths/")
        return any(place in path for place in places) and f"{self.name}-" in path

    def _broken(self, what: str) -> None:
        self._history.violated(f"{self.name}: {what}")

    def left(self) -> list[str]:
        """The volumes that are still staged or published."""
        staged = [f"{self.name}: {handle} is staged" for handle in self.staged]
        return [*staged, *(f"{self.name}: {path} is published" for path in self.published)]

    def mounts(self) -> Iterator[MountPoint]:
        """The driver's mounts, as the kernel lists them."""
        for handle, path in self.staged.items():
            yield MountPoint(path, shared=False, device=f"{self.name}:{handle}", root="/")
        for path, handle in self.published.items():
            yield MountPoint(path, shared=False, device=f"{self.name}:{handle}", root="/")


def _where_it_can_be(path: str) -> Path:
    """The path, which a driver makes if its parent exists. Raises Refused."""
    if not Path(path).parent.is_dir():
        raise Refused(Code.INTERNAL, f"there is no directory for {path}")
    return Path(path)


def _directories(path: str) -> set[str]:
    return {each.name for each in Path(path).iterdir() if each.is_dir()}
