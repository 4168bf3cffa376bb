"""Collects resource usage on demand, once for all requests within a second.

Cpu and memory come from the cgroup files, which cost the runtime nothing and are current; writable
layers, and whatever has no cgroup here, come from the runtime. With ``prefer_runtime`` (the feature
gate PodAndContainerStatsFromCRI) the runtime's numbers take precedence over the files.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Struct
from kubeletpy.node.stats import disk_plan, from_cri
from kubeletpy.node.stats.completed import completed, mount_points
from kubeletpy.node.stats.disks import DiskMeter, space_with_device
from kubeletpy.node.stats.from_cri import CriStats
from kubeletpy.node.stats.group_files import GroupFiles
from kubeletpy.node.stats.locate import Locator
from kubeletpy.node.stats.node_files import NodeFiles
from kubeletpy.node.stats.pod_files import PodFiles, RunningPod
from kubeletpy.node.stats.shared import Shared
from kubeletpy.node.stats.usage import (
    Disks,
    FsSpace,
    NodeReading,
    PodReading,
    PodRef,
    Reading,
    TreeUse,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.remote.errors import CRIError, ResourceExhausted, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.volumes.claims.on_disk import MeasuredVolume

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


class StatsCollector:
    """Collects; make it inside a running event loop and close it."""

    def __init__(self, sources: StatsSources) -> None:
        self._from = sources
        version = sources.groups.version if sources.groups is not None else 2
        self._locator = Locator(sources.runtime, version)
        self._pods = PodFiles(
            sources.groups, sources.node, sources.clock, sources.pod_path, sources.pod
        )
        self._usage = Shared(lambda: self._collect(detail=False))
        self._detail = Shared(lambda: self._collect(detail=True))
        self._disks = Shared(self._measure)
        self._threads = PatientThreads(READERS)
        self._silent = False
        """It has been logged that the runtime gives no stats."""

    async def usage(self, begun_after: float = -math.inf) -> Reading:
        """Cpu, memory and swap. A runtime that fails is reported in ``Reading.problem``.

        ``begun_after``: a time of the loop's clock; earlier readings do not serve.
        """
        return await self._usage.get(begun_after)

    async def detail(self, begun_after: float = -math.inf) -> Reading:
        """Everything that cgroups, interfaces and the runtime report, including writable layers."""
        return await self._detail.get(begun_after)

    async def disks(self) -> Disks:
        """File systems, volumes and logs: some numbers are up to a minute old."""
        return await self._disks.get()

    async def at_once(self, *, disk: bool) -> tuple[Reading, Disks | None]:
        """A fresh reading, regardless of cached ones; ``disk``: disk usage too."""
        if not disk:
            return await self._collect(detail=False), None
        return await self._collect(detail=True), await self._measure()

    def refs(self) -> Mapping[str, PodRef]:
        """The running pods, by uid."""
        return {pod.ref.uid: pod.ref for pod in self._running()}

    async def close(self) -> None:
        """Stop measuring."""
        for each in (self._usage, self._detail, self._disks):
            await each.close()
        await self._from.disks.close()

    def _now(self) -> int:
        return int(self._from.clock.now() * 1e9)

    def _running(self) -> list[RunningPod]:
        return [RunningPod(each) for each in self._from.statuses() if each.has_ready_sandbox]

    async def _collect(self, *, detail: bool) -> Reading:
        pods = self._running()
        located = await self._located(pods)
        at = self._now()
        node, found = await self._threads.run(self._read_usage, pods, located, detail)
        said, problem = await self._runtime_stats(found, detail=detail)
        if said is not None:
            spaces = await self._threads.run(_spaces, mount_points(said), at)
            first = self._from.prefer_runtime
            found = [completed(pod, said, spaces, prefer_runtime=first) for pod in found]
        return Reading(at, node, tuple(found), problem)

    async def _located(self, pods: Sequence[RunningPod]) -> Mapping[str, str]:
        """Paths of cgroups that are not below their pod's."""
        homeless = [pod for pod in pods if self._from.pod_path(pod.ref.uid) is None]
        if not homeless or self._from.groups is None:
            return {}
        return await self._locator.find(
            [pod.sandbox.id for pod in homeless],
            [container.id for pod in homeless for container in pod.containers],
        )

    def _read_usage(
        self, pods: Sequence[RunningPod], located: Mapping[str, str], detail: bool
    ) -> tuple[NodeReading, list[PodReading]]:
        node = self._from.node.read_node(detail=detail)
        return node, [self._pods.read_pod(pod, located, detail=detail) for pod in pods]

    async def _runtime_stats(
        self, pods: Sequence[PodReading], *, detail: bool
    ) -> tuple[CriStats | None, str]:
        """The runtime's stats, if they are needed; and why they could not be read."""
        lacking = any(group.stats is None for pod in pods for group in pod.containers)
        of_sandboxes = self._from.prefer_runtime or lacking
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

    async def _query_runtime(self, *, of_sandboxes: bool) -> CriStats:
        runtime = self._from.runtime
        if of_sandboxes:
            try:
                return from_cri.from_sandboxes(await runtime.list_pod_sandbox_stats())
            except (Unimplemented, ResourceExhausted) as error:
                log.debug("the runtime has no statistics of sandboxes", extra={"why": str(error)})
        return from_cri.from_containers(await runtime.list_container_stats())

    async def _measure(self) -> Disks:
        plans = [plan for pod in self._running() if (plan := self._plan(pod)) is not None]
        measured = await self._from.disks.measure(p for plan in plans for p in plan.paths())
        pending = self._from.disks.pending(p for plan in plans for p in plan.paths())
        at = self._now()
        root = await self._threads.run(space_with_device, self._from.root_dir, at)
        image, containers = await self._runtime_file_systems(at)
        disks = {plan.uid: disk_plan.pod_disk(plan, measured, pending) for plan in plans}
        return Disks(root, image, containers, disks, self._from.claimed())

    def _plan(self, pod: RunningPod) -> disk_plan.PodTrees | None:
        return disk_plan.trees(
            pod.ref,
            self._from.pod(pod.ref.uid),
            tuple(container.name for container in pod.containers),
            f"{self._from.root_dir}/pods",
            self._from.pod_logs_dir,
        )

    async def _runtime_file_systems(self, at: int) -> tuple[TreeUse | None, TreeUse | None]:
        """File systems of images and of writable layers; if the runtime names one, it is both."""
        try:
            info = await self._from.images.image_fs_info()
        except CRIError as error:
            log.warning("the runtime does not report its file systems", extra={"why": str(error)})
            return None, None
        return await self._threads.run(_file_systems, info, at)


def _spaces(points: Iterable[str], at: int) -> dict[str, FsSpace]:
    found = ((point, space_with_device(point, at)) for point in points)
    return {point: space for point, space in found if space is not None}


def _file_systems(info: cri.ImageFsInfoResponse, at: int) -> tuple[TreeUse | None, TreeUse | None]:
    images = [_file_system(each, at) for each in info.image_filesystems[:1]]
    layers = [_file_system(each, at) for each in info.container_filesystems[:1]]
    both = [*images, *(layers or images)]
    return (both[0], both[1]) if len(both) > 1 else (None, None)


def _file_system(given: cri.FilesystemUsage, at: int) -> TreeUse:
    used = given.used_bytes.value if given.HasField("used_bytes") else None
    inodes = given.inodes_used.value if given.HasField("inodes_used") else None
    space = space_with_device(given.fs_id.mountpoint, at)
    if space is not None and not inodes:
        inodes = space.inodes - space.inodes_free
    return TreeUse(given.timestamp or at, used, inodes, space)
