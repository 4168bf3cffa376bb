"""A simulated machine in a directory: cgroups of version 2, and a small runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kubeletpy.node.stats.collector import StatsCollector, StatsSources
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.group_files import GroupFiles
from kubeletpy.node.stats.node_files import NodeFiles
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from tests.virtual_time import EPOCH

TEXTS = {
    "cpu.stat": "usage_usec 4000000\nuser_usec 3000000\nsystem_usec 1000000\n",
    "memory.current": "9000\n",
    "memory.stat": "anon 500\ninactive_file 2000\npgfault 6\npgmajfault 1\n",
    "memory.max": "max\n",
    "memory.swap.current": "0\n",
    "pids.current": "3\n",
    "io.stat": "254:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
}


class ThreadClock:
    """The wall clock of the loop that first called :meth:`now`, for its threads too."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return EPOCH + self._loop.time()


@dataclass
class Runtime:
    """A runtime with fixed answers; ``requested`` names the calls."""

    containers: Sequence[cri.ContainerStats] | CRIError = ()
    sandboxes: Sequence[cri.PodSandboxStats] | CRIError | None = None
    pids: dict[str, int] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)

    async def list_container_stats(self) -> Sequence[cri.ContainerStats]:
        self.requested.append("containers")
        if isinstance(self.containers, CRIError):
            raise self.containers
        return self.containers

    async def list_pod_sandbox_stats(self) -> Sequence[cri.PodSandboxStats]:
        self.requested.append("sandboxes")
        if self.sandboxes is None:
            raise Unimplemented("ListPodSandboxStats", "not here")
        if isinstance(self.sandboxes, CRIError):
            raise self.sandboxes
        return self.sandboxes

    async def container_status(self, identifier: str, verbose: bool) -> Any:
        self.requested.append(f"status {identifier}")
        info = f'{{"pid": {self.pids.get(identifier, 0)}}}'
        return cri.ContainerStatusResponse(info={"info": info})

    async def pod_sandbox_status(self, identifier: str, verbose: bool) -> Any:
        self.requested.append(f"status {identifier}")
        info = f'{{"pid": {self.pids.get(identifier, 0)}}}'
        return cri.PodSandboxStatusResponse(info={"info": info})

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        self.requested.append("file systems")
        usage = cri.FilesystemUsage(
            timestamp=5,
            fs_id=cri.FilesystemIdentifier(mountpoint="/"),
            used_bytes=cri.UInt64Value(value=77),
            inodes_used=cri.UInt64Value(value=7),
        )
        return cri.ImageFsInfoResponse(image_filesystems=[usage])


class Machine:
    """The simulated machine; :meth:`add` creates pods."""

    def __init__(self, directory: Path, runtime: Runtime | None = None) -> None:
        self.cgroups = directory / "cgroup"
        self.cgroups.mkdir()
        self.proc = directory / "proc"
        (self.proc / "pressure").mkdir(parents=True)
        (self.proc / "stat").write_text("cpu  100 0 50 1 1 0 0 0 0 0\nbtime 1600000000\n")
        (self.proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 300 kB\n")
        self.runtime = runtime or Runtime()
        self.clock = ThreadClock()
        self.directory = directory
        self.statuses: list[PodRuntimeStatus] = []
        self.paths: dict[str, str] = {}
        self.pods: dict[str, Pod] = {}

    def group(self, path: str, pids: Sequence[int] = ()) -> None:
        """Create a cgroup."""
        made = self.cgroups / path.lstrip("/")
        made.mkdir(parents=True, exist_ok=True)
        for name, text in TEXTS.items():
            (made / name).write_text(text)
        (made / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def add(self, uid: str, *names: str, groups: bool = True, **sandbox: Any) -> None:
        """Add a pod with running containers, with or without cgroups of its own."""
        containers = tuple(
            ContainerStatus(
                f"{uid}x{name}", name, ContainerState.RUNNING, created_at=3, started_at=4
            )
            for name in names
        )
        self.statuses.append(
            PodRuntimeStatus(
                uid,
                f"pod-{uid}",
                "shop",
                sandboxes=(SandboxStatus(f"{uid}xsb", ready=True, created_at=2, **sandbox),),
                containers=containers,
            )
        )
        if not groups:
            return
        self.paths[uid] = f"/kubepods/pod{uid}"
        for below in ("", f"/{uid}xsb", *(f"/cri-containerd-{c.id}.scope" for c in containers)):
            self.group(self.paths[uid] + below)

    def collector(self, **more: Any) -> StatsCollector:
        """A collector for this machine."""
        files = GroupFiles(2, {"memory": self.cgroups, "cpu": self.cgroups}, self.clock)
        node = NodeFiles(
            files, self.clock, named={"pods": "/kubepods"}, pods=("/kubepods",), proc=self.proc
        )
        pod_path: Callable[[str], str | None] = self.paths.get
        return StatsCollector(
            StatsSources(
                runtime=cast(Any, self.runtime),
                images=cast(Any, self.runtime),
                clock=self.clock,
                statuses=lambda: self.statuses,
                pod=self.pods.get,
                pod_path=pod_path,
                groups=files,
                node=node,
                disks=DiskMeter(self.clock),
                root_dir=str(self.directory),
                pod_logs_dir=str(self.directory / "logs"),
                **more,
            )
        )
