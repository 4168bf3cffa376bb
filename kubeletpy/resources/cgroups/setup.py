"""Sets up the cgroups of this machine from KubeletConfiguration and the kernel's facts.

The composition root calls it once, at the start.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kubeletpy.base.api.quantity import value
from kubeletpy.base.host import machine
from kubeletpy.base.structs import Struct
from kubeletpy.base.text import number
from kubeletpy.config import KubeletSettings
from kubeletpy.pods.resources import MemoryQoS, livelock_risk, page_size_name
from kubeletpy.remote.client import cgroup_driver
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.cgroups import values
from kubeletpy.resources.cgroups.filesystem import MOUNT_POINT, detect
from kubeletpy.resources.cgroups.tree import (
    CgroupTree,
    ReservedCgroup,
    SliceUnits,
    SystemdFilesystem,
    TreeOptions,
)

log = logging.getLogger(__name__)

SYSTEMD_RUNS = Path("/run/systemd/system")
"""Exists while systemd is the init of this machine (sd_booted(3))."""


class KernelFacts(Struct, frozen=True):
    """Facts that sandbox and container configs and pods' cgroups depend on."""

    cgroup_v2: bool = False
    swap_controller: bool = False
    """Whether memory cgroups can limit swap."""
    hugepage_sizes: tuple[str, ...] = ()
    """``2MB``, ``1GB``; none where no controller counts them."""
    thermal_throttle_paths: tuple[str, ...] = ()
    max_pids: int = 0
    """The maximum number of processes; 0: unknown."""
    apparmor: bool = False
    selinux_label: str = ""
    """The SELinux label that files of containers have; empty: the kernel labels nothing."""


def read_kernel_facts(root: Path = Path("/")) -> KernelFacts:
    """Read the facts from files below ``root``; anything unreadable counts as absent."""
    mounted = root / MOUNT_POINT.relative_to("/")
    controllers = _text(mounted / "cgroup.controllers")
    v2 = (mounted / "cgroup.controllers").is_file()
    if v2:
        swap = any(mounted.glob("*/memory.swap.max"))
        counts_pages = "hugetlb" in controllers.split()
    else:
        swap = (mounted / "memory" / "memory.memsw.limit_in_bytes").exists()
        counts_pages = (mounted / "hugetlb").is_dir()
    sizes = machine.huge_pages(root / "sys/kernel/mm/hugepages")
    throttles = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    return KernelFacts(
        cgroup_v2=v2,
        swap_controller=swap,
        hugepage_sizes=tuple(map(page_size_name, sizes)) if counts_pages else (),
        thermal_throttle_paths=tuple(f"/{path.relative_to(root)}" for path in throttles),
        max_pids=_max_pids(root),
        apparmor=_text(root / "sys/module/apparmor/parameters/enabled").startswith("Y"),
        selinux_label=machine.file_label(root),
    )


def _max_pids(root: Path) -> int:
    reported = [
        number(_text(root / "proc/sys/kernel" / name)) for name in ("threads-max", "pid_max")
    ]
    return min((limit for limit in reported if limit is not None), default=0)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def make_tree(
    settings: KubeletSettings,
    kernel: KernelFacts,
    driver: str,
    *,
    capacity: Mapping[str, str],
    reserved_cpus: int = 0,
    driver_reported: bool = False,
    mount_point: Path = MOUNT_POINT,
    systemd_runs: Path = SYSTEMD_RUNS,
) -> CgroupTree | None:
    """Create the groups for pods, or return None where pods have no cgroups (cgroupsPerQOS false).

    ``driver`` is the runtime's (``driver_reported``), else the configuration's; ``reserved_cpus``
    counts the CPUs of reservedSystemCPUs.

    Raises:
        CgroupError: there are no cgroups, or they can't be created; the message states what to do.
    """
    if not settings.cgroups_per_qos:
        return None
    if driver == values.CgroupDriver.SYSTEMD and not systemd_runs.is_dir():
        raise values.CgroupsUnavailable(
            f"cgroupDriver is systemd, but systemd does not run here (no {systemd_runs}): set it "
            "to cgroupfs, in the container runtime too"
        )
    try:
        names = values.PodCgroupNames(
            values.CgroupDriver(driver), values.parse_root(settings.cgroup_root)
        )
        reserved = tuple(_reserved(settings, kernel))
    except values.InvalidCgroupName as error:
        raise values.CgroupError(
            f"cgroupRoot, systemReservedCgroup or kubeReservedCgroup: {error}"
        ) from error
    options = TreeOptions(
        names=names,
        pods=values.PodCgroupSettings(
            cpu_cfs_quota=settings.cpu_cfs_quota,
            cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
            pids_limit=settings.pod_pids_limit,
            hugepage_sizes=kernel.hugepage_sizes,
            memory_qos=memory_qos(settings, cgroup_v2=kernel.cgroup_v2),
        ),
        kubepods=values.kubepods_group(
            capacity,
            (settings.kube_reserved, settings.system_reserved),
            max_pids=kernel.max_pids,
            reserved_cpus=reserved_cpus,
            enforce="pods" in settings.enforce_node_allocatable,
            hugepage_sizes=kernel.hugepage_sizes,
        ),
        reserved=reserved,
        memory=_reserved_memory(settings, capacity),
        driver_reported=driver_reported,
    )
    if livelock_risk(options.pods.memory_qos, kernel_version := platform.release()):
        log.warning(
            "memoryThrottlingFactor: processes may hang at memory.high with kernels before 5.9; "
            "unset it or update the kernel",
            extra={"kernel": kernel_version},
        )
    files = detect(mount_point)
    if systemd_runs.is_dir():
        files = SystemdFilesystem(files, SliceUnits(files.version))
    tree = CgroupTree(files, options)
    tree.prepare()
    return tree


async def set_up(
    settings: KubeletSettings,
    kernel: KernelFacts,
    runtime: RuntimeService,
    *,
    capacity: Mapping[str, str],
    reserved_cpus: int = 0,
    losing_support: Callable[[], None] = lambda: None,
) -> CgroupTree | None:
    """Make the tree with the driver that the runtime uses, see :func:`make_tree`.

    ``losing_support`` is called for a runtime too old to report its driver. Raises CgroupError.
    """
    try:
        reported = await cgroup_driver(runtime, losing_support)
    except CRIError as error:
        raise values.CgroupError(
            f"the runtime does not report which cgroup driver it has: {error}"
        ) from error
    driver = reported or settings.cgroup_driver
    if driver != settings.cgroup_driver:
        log.warning(
            "the runtime's cgroup driver is used, not the one of the configuration",
            extra={"runtime": driver, "cgroupDriver": settings.cgroup_driver},
        )
    tree = make_tree(
        settings,
        kernel,
        driver,
        capacity=capacity,
        reserved_cpus=reserved_cpus,
        driver_reported=reported is not None,
    )
    if tree is not None:
        await tree.files.settle()
    return tree


def memory_qos(
    settings: KubeletSettings, *, cgroup_v2: bool, allocatable: int = 0
) -> MemoryQoS | None:
    """The memory settings of pods to write to the kernel; ``allocatable`` in bytes."""
    if not (cgroup_v2 and settings.feature_gates.enabled("MemoryQoS")):
        return None
    return MemoryQoS(
        settings.memory_reservation_policy == "TieredReservation",
        settings.memory_throttling_factor,
        allocatable,
    )


def _reserved_memory(
    settings: KubeletSettings, capacity: Mapping[str, str]
) -> values.ReservedMemory | None:
    percent = settings.qos_reserved.get("memory")
    if percent is None or not settings.feature_gates.enabled("QOSReserved"):
        return None
    reserved = (settings.kube_reserved, settings.system_reserved)
    left = values.unreserved_memory(value(capacity["memory"]), reserved)
    return values.ReservedMemory(int(percent.removesuffix("%")), left)


def _reserved(settings: KubeletSettings, kernel: KernelFacts) -> Iterator[ReservedCgroup]:
    kinds = (
        ("system", settings.system_reserved_cgroup, settings.system_reserved),
        ("kube", settings.kube_reserved_cgroup, settings.kube_reserved),
    )
    for suffix in ("", "-compressible"):
        for kind, path, amounts in kinds:
            if f"{kind}-reserved{suffix}" not in settings.enforce_node_allocatable:
                continue
            what = f"{kind.capitalize()} Reserved{' Compressible' if suffix else ''}"
            resources = values.reserved_group(
                amounts,
                compressible=bool(suffix),
                hugepage_sizes=kernel.hugepage_sizes,
                keep_memory=settings.feature_gates.enabled("MemoryQoS"),
            )
            yield ReservedCgroup(what, values.parse_existing(path), resources)
