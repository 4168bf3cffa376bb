"""Sample readings, and a simulated machine in a directory: cgroups v2 and a small runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kubeletpy.base.structs import replace
from kubeletpy.node.stats.cadvisor import MachineInfo
from kubeletpy.node.stats.collector import StatsCollector, StatsSources
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.group_files import GroupFiles
from kubeletpy.node.stats.node_files import NodeFiles
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    DeviceIo,
    Disks,
    FsSpace,
    GroupKind,
    GroupStats,
    Interface,
    Network,
    NodeReading,
    PodDisk,
    PodReading,
    PodRef,
    Psi,
    PsiLine,
    Reading,
    RlimitStats,
    TreeUse,
    VolumeUse,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.volumes.claims.model import (
    MeasuredVolume,
    MountedVolume,
    PublishedOnDisk,
    VolumeStats,
)
from tests.kit.machines import FACTS
from tests.kit.virtual_time import EPOCH

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
STALLS = Psi(PsiLine(5_000_000, 1.5, 0.5, 0.25), PsiLine(2_000_000, 0.5, 0.25, 0.0))
SPACE = FsSpace(NOW, 1000, 400, 500, 100, 60, "/dev/vda")
ETH0 = Interface("eth0", 1, 2, 3, 4, 5, 6, 7, 8)
REF = PodRef("u-1", "web", "shop")


def stats(at: int = NOW, cpu_ns: int = 4 * SECOND, **more: Any) -> GroupStats:
    """All the stats that a cgroup of version 2 provides."""
    values: dict[str, Any] = {
        "user_ns": 3 * SECOND,
        "system_ns": SECOND,
        "periods": 10,
        "throttled_periods": 2,
        "throttled_ns": SECOND // 2,
        "quota_us": 50_000,
        "period_us": 100_000,
        "shares": 102,
        "throttled_at_high": 14,
        "dirty": 15,
        "writeback": 16,
        "scanned_pages": 17,
        "reclaimed_pages": 18,
        "file_refaults": 19,
        "anon_refaults": 20,
        "memory": 900,
        "working_set": 700,
        "rss": 500,
        "cache": 300,
        "mapped_file": 20,
        "kernel": 30,
        "active_file": 40,
        "inactive_file": 200,
        "limit": 1024,
        "max_memory": 950,
        "failures": 1,
        "oom_kills": 0,
        "faults": 60,
        "major_faults": 6,
        "own_faults": 50,
        "own_major_faults": 5,
        "swap": 8,
        "swap_limit": 16,
        "pids": 3,
        "pids_max": 99,
        "devices": (DeviceIo(254, 0, 10, 20, 1, 2),),
        "cpu_psi": STALLS,
        "memory_psi": STALLS,
        "io_psi": STALLS,
    }
    return GroupStats(at=at, cpu_ns=cpu_ns, **{**values, **more})


def use(used: int, inodes: int = 1) -> TreeUse:
    """A directory tree on the file system SPACE."""
    return TreeUse(NOW, used, inodes, SPACE)


def container(name: str = "main", **more: Any) -> CgroupUsage:
    """A running container of the pod REF."""
    values: dict[str, Any] = {
        "stats": stats(),
        "path": f"/kubepods/podu-1/id-{name}",
        "pod": REF,
        "id": f"id-{name}",
        "image": "img:1",
        "created_at": NOW - 9 * SECOND,
        "started_at": NOW - 8 * SECOND,
        "layer": use(70, 7),
        "processes": 2,
        "descriptors": 11,
    }
    return CgroupUsage(GroupKind.CONTAINER, name=name, **{**values, **more})


def pod(**more: Any) -> PodReading:
    """The pod REF with one container."""
    at = NOW - 10 * SECOND
    path = "/kubepods/podu-1"
    group = CgroupUsage(GroupKind.POD, stats(cpu_ns=6 * SECOND), path, pod=REF, created_at=at)
    sandbox = CgroupUsage(GroupKind.SANDBOX, stats(), f"{path}/sb", pod=REF, id="sb", created_at=at)
    values: dict[str, Any] = {
        "group": group,
        "sandbox": sandbox,
        "containers": (container(),),
        "network": Network(NOW, (ETH0,)),
        "processes": 3,
    }
    return PodReading(REF, **{**values, **more})


def reading(*pods: PodReading, at: int = NOW, problem: str = "") -> Reading:
    """A node with these pods."""
    node = CgroupUsage(GroupKind.NODE, stats(at), "/", started_at=NOW - 99 * SECOND)
    daemon = CgroupUsage(GroupKind.SYSTEM, stats(at), "/agent", "kubelet", started_at=NOW)
    all_pods = CgroupUsage(GroupKind.PODS, stats(at), "/kubepods")
    return Reading(
        at,
        NodeReading(
            node, Network(NOW, (ETH0,)), SPACE, RlimitStats(NOW, 4096, 77), (daemon,), (all_pods,)
        ),
        pods,
        problem,
    )


def disks() -> Disks:
    """File systems, and the usage of the pod REF on them."""
    volumes = (VolumeUse("data", use(40, 4), True), VolumeUse("token", use(5, 1), False))
    disk = PodDisk(volumes, {"main": use(20, 2)}, (use(3, 3),))
    left = PublishedOnDisk("kubernetes.io/csi", "u", REF.uid, "pv", "/v")
    volume = MountedVolume(REF.uid, "claimed", ("ns", "data"), "d", left)
    full = VolumeStats(100, 70, 30, 10, 4, 6, abnormal=False)
    claimed = {REF.uid: [MeasuredVolume(volume, full, NOW / SECOND)]}
    return Disks(SPACE, use(600, 60), use(500, 50), {REF.uid: disk}, claimed)


def machine_info(cpus: int, cores: int, sockets: int, memory: int, swap: int) -> MachineInfo:
    """A machine with so many CPUs, and bytes of memory and swap."""
    facts = replace(FACTS, cpu_count=cpus, memory_bytes=memory, swap_bytes=swap)
    return MachineInfo(facts, cores, sockets)


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
