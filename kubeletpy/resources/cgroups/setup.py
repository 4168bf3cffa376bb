"""From KubeletConfiguration to the tree of cgroups of this machine, for the composition root."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kubeletpy.base.api.quantity import value
from kubeletpy.config import KubeletSettings
from kubeletpy.pods.resources import MemoryQoS, livelock_risk
from kubeletpy.remote.client import cgroup_driver
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.cgroups.detect import MOUNT_POINT, detect
from kubeletpy.resources.cgroups.errors import CgroupError, CgroupsUnavailable
from kubeletpy.resources.cgroups.machine import KernelFacts
from kubeletpy.resources.cgroups.names import (
    CgroupDriver,
    InvalidCgroupName,
    PodCgroupNames,
    parse_existing,
)
from kubeletpy.resources.cgroups.names import parse_root as parse_cgroup_root
from kubeletpy.resources.cgroups.tree import CgroupTree, ReservedCgroup, TreeOptions
from kubeletpy.resources.cgroups.values import (
    PodCgroupSettings,
    ReservedMemory,
    kubepods_group,
    reserved_group,
    unreserved_memory,
)

log = logging.getLogger(__name__)

SYSTEMD_RUNS = Path("/run/systemd/system")
"""Exists while systemd is the init of this machine (sd_booted(3))."""


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
    """Create the groups for pods; None when pods have no cgroups (cgroupsPerQOS false).

    ``driver`` is the runtime's (``driver_reported``), else the configuration's; ``reserved_cpus``
    counts the CPUs of reservedSystemCPUs.

    Raises:
        CgroupError: there are no cgroups, or they can't be created; the message states what to do.
    """
    if not settings.cgroups_per_qos:
        return None
    if driver == CgroupDriver.SYSTEMD and not systemd_runs.is_dir():
        raise CgroupsUnavailable(
            f"cgroupDriver is systemd, but systemd does not run here (no {systemd_runs}): set it "
            "to cgroupfs, in the container runtime too"
        )
    try:
        names = PodCgroupNames(CgroupDriver(driver), parse_cgroup_root(settings.cgroup_root))
        reserved = tuple(_reserved(settings, kernel))
    except InvalidCgroupName as error:
        raise CgroupError(f"cgroupRoot, systemReservedCgroup or kubeReservedCgroup: {error}") from (
            error
        )
    options = TreeOptions(
        names=names,
        pods=PodCgroupSettings(
            cpu_cfs_quota=settings.cpu_cfs_quota,
            cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
            pids_limit=settings.pod_pids_limit,
            hugepage_sizes=kernel.hugepage_sizes,
            memory_qos=memory_qos(settings, cgroup_v2=kernel.cgroup_v2),
        ),
        kubepods=kubepods_group(
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
        from kubeletpy.resources.cgroups.slices import SliceUnits, SystemdFilesystem

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
    """:func:`make_tree` with the driver that the runtime uses. Raises CgroupError.

    ``losing_support`` is called for a runtime too old to report its driver.
    """
    try:
        reported = await cgroup_driver(runtime, losing_support)
    except CRIError as error:
        raise CgroupError(f"the runtime does not report which cgroup driver it has: {error}") from (
            error
        )
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
) -> ReservedMemory | None:
    percent = settings.qos_reserved.get("memory")
    if percent is None or not settings.feature_gates.enabled("QOSReserved"):
        return None
    reserved = (settings.kube_reserved, settings.system_reserved)
    left = unreserved_memory(value(capacity["memory"]), reserved)
    return ReservedMemory(int(percent.removesuffix("%")), left)


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
            resources = reserved_group(
                amounts,
                compressible=bool(suffix),
                hugepage_sizes=kernel.hugepage_sizes,
                keep_memory=settings.feature_gates.enabled("MemoryQoS"),
            )
            yield ReservedCgroup(what, parse_existing(path), resources)
