"""Collects resource usage on demand, and builds the served statistics from it.

One reading answers all requests within a second. Cpu and memory come from the cgroup files, which
cost the runtime nothing and are current; writable layers, and whatever has no cgroup here, come
from the runtime. With ``prefer_runtime`` (the feature gate PodAndContainerStatsFromCRI) the
runtime's numbers take precedence over the files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import cancel_tasks, run_together
from kubeletpy.config import KubeletSettings
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.stats import disk_plan, proc_text
from kubeletpy.node.stats import usage as stats_usage
from kubeletpy.node.stats.disks import DiskMeter, space_with_device
from kubeletpy.node.stats.group_files import GroupFiles, Locator, read_text
from kubeletpy.node.stats.node_files import NodeFiles, PodFiles, RunningPod
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.resources import QoSClass
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError, ResourceExhausted, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.resources.cgroups.filesystem import detect
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import CgroupError, InvalidCgroupName, parse_existing
from kubeletpy.volumes.claims.model import MeasuredVolume

if TYPE_CHECKING:
    from kubeletpy.node.stats.cadvisor import MachineInfo

V = TypeVar("V")

MAX_AGE_S = 1.0
"""Counted from when making the value began."""


class Shared(Generic[V]):
    """Makes a value on demand and shares it with all callers for a second."""

    def __init__(self, make: Callable[[], Awaitable[V]]) -> None:
        """Errors of ``make`` are raised and not cached."""
        self._make = make
        self._at = 0.0
        self._made: asyncio.Future[V] | None = None
        self._running: set[asyncio.Future[V]] = set()

    async def close(self) -> None:
        """Cancel the values that are being made."""
        await cancel_tasks(self._running)

    async def get(self, begun_after: float = -math.inf) -> V:
        """The value, from a making that began after a time of the loop's clock."""
        now = asyncio.get_running_loop().time()
        made = self._made
        if (
            made is None
            or made.cancelled()
            or self._at < begun_after
            or (made.done() and (now - self._at >= MAX_AGE_S or made.exception() is not None))
        ):
            made = self._made = asyncio.ensure_future(self._make())
            self._running.add(made)
            made.add_done_callback(self._running.discard)
            self._at = now
        # one client that disconnects must not cancel the answer that others wait for
        return await asyncio.shield(made)


log = logging.getLogger(__name__)

READERS = 3
"""Threads separate from those that start pods: clients decide how often stats are read, and the
runtime decides which file systems are checked, one of which may hang."""


class StatsSources(Struct, frozen=True):
    """The sources of all numbers.

    Attributes:
        statuses: of all pods that the runtime has.
        pod: the object of a pod by uid; None when no source has it.
        pod_path: a pod's cgroup by uid; None when it has none of its own.
        groups: None where there are no cgroups to read.
        root_dir: --root-dir; its file system is the node's.
        prefer_runtime: the feature gate PodAndContainerStatsFromCRI.
    """

    runtime: RuntimeService
    images: ImageService
    clock: Clock
    statuses: Callable[[], Iterable[PodRuntimeStatus]]
    pod: Callable[[str], Pod | None]
    pod_path: Callable[[str], str | None]
    groups: GroupFiles | None
    node: NodeFiles
    disks: DiskMeter
    root_dir: str
    pod_logs_dir: str
    prefer_runtime: bool = False
    claimed: Callable[[], Mapping[str, Sequence[MeasuredVolume]]] = dict
    """Volumes of claims, drivers and disks as last measured, by pod uid."""


class StatsCollector(Component):
    """Collects; make it inside a running event loop and close it."""

    sources: StatsSources

    def __post_init__(self) -> None:
        version = self.sources.groups.version if self.sources.groups is not None else 2
        self._locator = Locator(self.sources.runtime, version)
        self._pods = PodFiles(
            self.sources.groups,
            self.sources.node,
            self.sources.clock,
            self.sources.pod_path,
            self.sources.pod,
        )
        self._usage = Shared(lambda: self._collect(detail=False))
        self._detail = Shared(lambda: self._collect(detail=True))
        self._disks = Shared(self._measure)
        self._threads = PatientThreads(READERS)
        self._silent = False
        """It has been logged that the runtime gives no stats."""

    async def usage(self, begun_after: float = -math.inf) -> stats_usage.Reading:
        """Cpu, memory and swap. A runtime that fails is reported in ``Reading.problem``.

        ``begun_after``: a time of the loop's clock; earlier readings do not serve.
        """
        return await self._usage.get(begun_after)

    async def detail(self, begun_after: float = -math.inf) -> stats_usage.Reading:
        """Everything that cgroups, interfaces and the runtime report, including writable layers."""
        return await self._detail.get(begun_after)

    async def disks(self) -> stats_usage.Disks:
        """File systems, volumes and logs: some numbers are up to a minute old."""
        return await self._disks.get()

    async def at_once(self, *, disk: bool) -> tuple[stats_usage.Reading, stats_usage.Disks | None]:
        """A fresh reading, regardless of cached ones; ``disk``: disk usage too."""
        if not disk:
            return await self._collect(detail=False), None
        return await self._collect(detail=True), await self._measure()

    def refs(self) -> Mapping[str, stats_usage.PodRef]:
        """The running pods, by uid."""
        return {pod.ref.uid: pod.ref for pod in self._running()}

    async def close(self) -> None:
        """End collections that are under way, and close the disk meter."""
        for each in (self._usage, self._detail, self._disks):
            await each.close()
        await self.sources.disks.close()

    def _now(self) -> int:
        return int(self.sources.clock.now() * 1e9)

    def _running(self) -> list[RunningPod]:
        return [RunningPod(each) for each in self.sources.statuses() if each.has_ready_sandbox]

    async def _collect(self, *, detail: bool) -> stats_usage.Reading:
        pods = self._running()
        located = await self._located(pods)
        at = self._now()
        node, found = await self._threads.run(self._read_usage, pods, located, detail)
        reported, problem = await self._runtime_stats(found, detail=detail)
        if reported is not None:
            spaces = await self._threads.run(_spaces, stats_usage.mount_points(reported), at)
            first = self.sources.prefer_runtime
            found = [
                stats_usage.completed(pod, reported, spaces, prefer_runtime=first) for pod in found
            ]
        return stats_usage.Reading(at, node, tuple(found), problem)

    async def _located(self, pods: Sequence[RunningPod]) -> Mapping[str, str]:
        """Paths of cgroups that are not below their pod's."""
        homeless = [pod for pod in pods if self.sources.pod_path(pod.ref.uid) is None]
        if not homeless or self.sources.groups is None:
            return {}
        return await self._locator.find(
            [pod.sandbox.id for pod in homeless],
            [container.id for pod in homeless for container in pod.containers],
        )

    def _read_usage(
        self, pods: Sequence[RunningPod], located: Mapping[str, str], detail: bool
    ) -> tuple[stats_usage.NodeReading, list[stats_usage.PodReading]]:
        node = self.sources.node.read_node(detail=detail)
        return node, [self._pods.read_pod(pod, located, detail=detail) for pod in pods]

    async def _runtime_stats(
        self, pods: Sequence[stats_usage.PodReading], *, detail: bool
    ) -> tuple[stats_usage.CriStats | None, str]:
        """The runtime's stats, if they are needed; and why they could not be read."""
        lacking = any(group.stats is None for pod in pods for group in pod.containers)
        of_sandboxes = self.sources.prefer_runtime or lacking
        if not pods or not (detail or of_sandboxes):
            return None, ""
        try:
            found = await self._query_runtime(of_sandboxes=of_sandboxes)
        except CRIError as error:
            level = logging.DEBUG if self._silent else logging.WARNING
            self._silent = True
            log.log(level, "the runtime gives no stats", extra={"why": str(error)})
            return None, str(error)
        self._silent = False
        return found, ""

    async def _query_runtime(self, *, of_sandboxes: bool) -> stats_usage.CriStats:
        runtime = self.sources.runtime
        if of_sandboxes:
            try:
                return stats_usage.from_sandboxes(await runtime.list_pod_sandbox_stats())
            except (Unimplemented, ResourceExhausted) as error:
                log.debug("the runtime has no statistics of sandboxes", extra={"why": str(error)})
        return stats_usage.from_containers(await runtime.list_container_stats())

    async def _measure(self) -> stats_usage.Disks:
        plans = [plan for pod in self._running() if (plan := self._plan(pod)) is not None]
        measured = await self.sources.disks.measure(p for plan in plans for p in plan.paths())
        pending = self.sources.disks.pending(p for plan in plans for p in plan.paths())
        at = self._now()
        root = await self._threads.run(space_with_device, self.sources.root_dir, at)
        image, containers = await self._runtime_file_systems(at)
        disks = {plan.uid: disk_plan.pod_disk(plan, measured, pending) for plan in plans}
        return stats_usage.Disks(root, image, containers, disks, self.sources.claimed())

    def _plan(self, pod: RunningPod) -> disk_plan.PodTrees | None:
        return disk_plan.trees(
            pod.ref,
            self.sources.pod(pod.ref.uid),
            tuple(container.name for container in pod.containers),
            f"{self.sources.root_dir}/pods",
            self.sources.pod_logs_dir,
        )

    async def _runtime_file_systems(
        self, at: int
    ) -> tuple[stats_usage.TreeUse | None, stats_usage.TreeUse | None]:
        """File systems of images and of writable layers; if the runtime names one, it is both."""
        try:
            info = await self.sources.images.image_fs_info()
        except CRIError as error:
            log.warning("the runtime does not report its file systems", extra={"why": str(error)})
            return None, None
        return await self._threads.run(_file_systems, info, at)


def _spaces(points: Iterable[str], at: int) -> dict[str, stats_usage.FsSpace]:
    found = ((point, space_with_device(point, at)) for point in points)
    return {point: space for point, space in found if space is not None}


def _file_systems(
    info: cri.ImageFsInfoResponse, at: int
) -> tuple[stats_usage.TreeUse | None, stats_usage.TreeUse | None]:
    images = [_file_system(each, at) for each in info.image_filesystems[:1]]
    layers = [_file_system(each, at) for each in info.container_filesystems[:1]]
    both = [*images, *(layers or images)]
    return (both[0], both[1]) if len(both) > 1 else (None, None)


def _file_system(supplied: cri.FilesystemUsage, at: int) -> stats_usage.TreeUse:
    used = supplied.used_bytes.value if supplied.HasField("used_bytes") else None
    inodes = supplied.inodes_used.value if supplied.HasField("inodes_used") else None
    space = space_with_device(supplied.fs_id.mountpoint, at)
    if space is not None and not inodes:
        inodes = space.inodes - space.inodes_free
    return stats_usage.TreeUse(supplied.timestamp or at, used, inodes, space)


# The served statistics: the summary and the two scrapes.
#
# Formatting runs in a thread, so that the scrape of a full node blocks nothing. A format's module
# is loaded on first use: many nodes serve only one or two.

SECOND_READING_S = 1.1 * stats_usage.WINDOW_MIN_NS / 1e9
"""Time from a reading to the next one by which it has rates."""

FROM_FILES, FROM_RUNTIME = "cadvisor", "cri"
WRITERS = 2
"""Documents written at once, on threads separate from those that start pods: clients decide how
many are requested."""


class StatsViews(Component):
    """The views of one node; keeps of a pod only its last cpu times, while it runs.

    Args:
        from_runtime: None, or the runtime, which writes the cadvisor scrape itself if it can.
        provider: called with which one writes it: FROM_FILES or FROM_RUNTIME.
    """

    collector: StatsCollector
    node_name: str
    machine: Callable[[], MachineInfo]
    from_runtime: RuntimeService | None = None
    provider: Callable[[str], None] = lambda name: None

    def __post_init__(self) -> None:
        self._descriptors: Sequence[cri.MetricDescriptor] | None = None
        self._rates = stats_usage.Rates()
        self._rating = asyncio.Lock()
        self._threads = PatientThreads(WRITERS)
        self.provider(FROM_FILES)

    async def summary(self, *, only_cpu_and_memory: bool) -> bytes:
        """The document of /stats/summary, as JSON."""
        if only_cpu_and_memory:
            reading, rates = await self._rated(self.collector.usage)
            return await self._threads.run(self._summary, reading, rates, None)
        (reading, rates), disks = await run_together(
            self._rated(self.collector.detail), self.collector.disks()
        )
        return await self._threads.run(self._summary, reading, rates, disks)

    async def _rated(
        self, read: Callable[[float], Awaitable[stats_usage.Reading]]
    ) -> tuple[stats_usage.Reading, Mapping[str, int]]:
        """A reading, and the cpu rates up to it.

        The first request after a start, or after a long time, waits for a second reading.
        """
        from kubeletpy.node.stats.summary import rated

        reading = await read(-math.inf)
        async with self._rating:
            rates, lacking = await self._threads.run(rated, reading, self._rates)
        if lacking:
            await asyncio.sleep(SECOND_READING_S)
            reading = await read(asyncio.get_running_loop().time())
            async with self._rating:
                rates, _ = await self._threads.run(rated, reading, self._rates)
        return reading, rates

    async def resource_metrics(self) -> bytes:
        """The scrape of /metrics/resource."""
        from kubeletpy.node.stats import scrapes

        return await self._threads.run(
            scrapes.render_resource_metrics, await self.collector.usage()
        )

    async def log_metrics(self) -> bytes:
        """The disk usage of container logs, for /metrics."""
        from kubeletpy.node.stats import scrapes

        return scrapes.render_log_metrics(await self.collector.disks(), self.collector.refs())

    async def cadvisor_metrics(self) -> bytes:
        """The scrape of /metrics/cadvisor."""
        if self.from_runtime is not None:
            try:
                return await self._from_runtime(self.from_runtime)
            except CRIError as error:
                level = logging.DEBUG if isinstance(error, Unimplemented) else logging.WARNING
                log.log(level, "the runtime gives no metrics", extra={"why": str(error)})
                self.provider(FROM_FILES)
        return await self._threads.run(self._cadvisor, await self.collector.detail())

    async def _from_runtime(self, runtime: RuntimeService) -> bytes:
        if not self._descriptors:
            self._descriptors = await runtime.list_metric_descriptors()
        pods = await runtime.list_pod_sandbox_metrics()
        self.provider(FROM_RUNTIME)
        from kubeletpy.node.stats import scrapes

        return await self._threads.run(scrapes.render_cri_metrics, self._descriptors, pods)

    def _summary(
        self,
        reading: stats_usage.Reading,
        rates: Mapping[str, int],
        disks: stats_usage.Disks | None,
    ) -> bytes:
        from kubeletpy.node.stats.summary import summary

        document = summary(reading, rates, disks, self.node_name)
        return json.dumps(document, separators=(",", ":")).encode()

    def _cadvisor(self, reading: stats_usage.Reading) -> bytes:
        from kubeletpy.node.stats import cadvisor

        devices = proc_text.devices(read_text("/proc/diskstats"))
        return cadvisor.render(reading, self.machine(), devices)


# From settings and the agent's parts, for the composition root.


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
            pod_path=pod_paths(pods, tree),
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


def pod_paths(pods: PodManager, tree: CgroupTree | None) -> Callable[[str], str | None]:
    """Return what finds the cgroup of a pod by uid."""

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
