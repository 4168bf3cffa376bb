"""Sample readings for tests of the output formats."""

from __future__ import annotations

from typing import Any

from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.stats.cadvisor import MachineInfo
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
from kubeletpy.volumes.claims.model import (
    MeasuredVolume,
    MountedVolume,
    PublishedOnDisk,
    VolumeStats,
)

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
    facts = MachineFacts(
        hostname="",
        architecture="",
        kernel_version="6.1",
        os_image="Debian",
        machine_id="id",
        system_uuid="uuid",
        boot_id="boot",
        cpu_count=cpus,
        memory_bytes=memory,
        swap_bytes=swap,
        root_storage_bytes=0,
    )
    return MachineInfo(facts, cores, sockets)
