"""Builds the views from settings and the agent's parts, for the composition root."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from kubeletpy.base.clock import Clock
from kubeletpy.config import KubeletSettings
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.collector import StatsCollector, StatsSources
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.group_files import GroupFiles, read_text
from kubeletpy.node.stats.node_files import NodeFiles
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.qos import QoSClass
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.resources.cgroups.detect import detect
from kubeletpy.resources.cgroups.errors import CgroupError
from kubeletpy.resources.cgroups.names import InvalidCgroupName, parse_existing
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.volumes.claims.on_disk import MeasuredVolume

if TYPE_CHECKING:
    from kubeletpy.node.stats.cadvisor import MachineInfo

log = logging.getLogger(__name__)


def make_collector(
    settings: KubeletSettings,
    clock: Clock,
    *,
    runtime: RuntimeService,
    images: ImageService,
    pods: PodManager,
    cache: PodStatusCache,
    tree: CgroupTree | None,
    root_dir: str,
    huge_pages: int = 0,
    runtime_cgroups: str = "",
    disks: DiskMeter | None = None,
    claimed: Callable[[], Mapping[str, Sequence[MeasuredVolume]]] = dict,
) -> StatsCollector:
    """The collector of this node; make it inside a running event loop and close it.

    ``huge_pages``: bytes that :func:`withheld_huge_pages` returns.
    ``runtime_cgroups`` is --runtime-cgroups. ``disks``: None: one that measures every
    volumeStatsAggPeriod. ``claimed``: volumes measured elsewhere, by pod uid.
    """
    groups = group_files(clock)
    names = tree.names if tree is not None else None
    node = NodeFiles(
        groups,
        clock,
        named={
            "kubelet": _existing(settings.kubelet_cgroups),
            "runtime": _existing(runtime_cgroups),
            "misc": _existing(settings.system_cgroups),
            "pods": names.kubepods if names is not None else "",
        },
        pods=tuple(names.group(quality) for quality in QoSClass) if names is not None else (),
        huge_pages=huge_pages,
        runtime_socket=settings.container_runtime_endpoint.removeprefix("unix://"),
        root_dir=root_dir,
    )
    return StatsCollector(
        StatsSources(
            runtime=runtime,
            images=images,
            clock=clock,
            statuses=lambda: [s for uid in cache if (s := cache.status(uid)) is not None],
            pod=pods.get,
            pod_path=_pod_paths(pods, tree),
            groups=groups,
            node=node,
            disks=disks or DiskMeter(clock, settings.volume_stats_agg_period or 60.0),
            root_dir=root_dir,
            pod_logs_dir=settings.pod_logs_dir,
            claimed=claimed,
            prefer_runtime=settings.feature_gates.enabled("PodAndContainerStatsFromCRI"),
        )
    )


def withheld_huge_pages(settings: KubeletSettings, facts: MachineFacts) -> int:
    """Bytes of huge pages to leave out of available memory; 0: gate HugepageAwareEviction is off.

    Source: docs/reference/behaviour.md, u: ka16.
    """
    if not settings.feature_gates.enabled("HugepageAwareEviction"):
        return 0
    return sum(facts.huge_pages.values())


def machine(facts: MachineFacts) -> Callable[[], MachineInfo]:
    """Facts that do not change, read on first use."""

    @cache
    def read() -> MachineInfo:
        from kubeletpy.node.stats.cadvisor import MachineInfo

        cores, sockets = proc_text.cpu_topology(read_text("/proc/cpuinfo"))
        return MachineInfo(facts, cores, sockets)

    return read


def group_files(clock: Clock) -> GroupFiles | None:
    """The cgroups of this machine; None where there are none."""
    try:
        found = detect()
    except CgroupError as error:
        log.warning("cgroups can't be read", extra={"why": str(error)})
        return None
    return GroupFiles(found.version, found.hierarchies, clock)


def _pod_paths(pods: PodManager, tree: CgroupTree | None) -> Callable[[str], str | None]:
    def path(uid: str) -> str | None:
        pod = pods.get(uid)
        if tree is None or pod is None:
            return None
        try:
            return tree.pod_path(pod)
        except CgroupError:
            return None

    return path


def _existing(path: str) -> str:
    try:
        return parse_existing(path) if path else ""
    except InvalidCgroupName:
        return ""
