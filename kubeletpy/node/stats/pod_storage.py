"""The disk usage of selected pods, measured on demand.

For limits, which must be watched although nobody scrapes: only the trees of pods with a limit are
walked, and the runtime is queried only about containers that count. Unmeasurable parts count as
nothing: a number never exceeds the real usage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings
from kubeletpy.node.stats import disk_plan, usage
from kubeletpy.node.stats.disk_plan import PodStorage, PodTrees
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.node_files import RunningPod
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError, ResourceExhausted
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService

log = logging.getLogger(__name__)

REQUESTED_ONE_BY_ONE = 4
"""Up to this many pods the runtime is queried about each; beyond that about all at once."""


class StorageSources(Struct, frozen=True):
    """The sources of the numbers.

    Attributes:
        status: of a pod by uid, as last seen in the runtime.
        pod: the object of a pod by uid.
        disks: a dedicated meter, because it forgets what was not requested.
    """

    runtime: RuntimeService
    images: ImageService
    status: Callable[[str], PodRuntimeStatus | None]
    pod: Callable[[str], Pod | None]
    disks: DiskMeter
    root_dir: str
    pod_logs_dir: str


class StorageMeter(Component):
    """Measures; ``close`` it within the event loop it was used in."""

    sources: StorageSources

    @classmethod
    def from_settings(
        cls,
        settings: KubeletSettings,
        clock: Clock,
        runtime: RuntimeService,
        images: ImageService,
        *,
        root_dir: str,
        pods: PodManager,
        cache: PodStatusCache,
        between: float,
    ) -> StorageMeter:
        """The meter of a node, which measures a tree at most every ``between`` seconds.

        Volumes of pods with limits are measured more often than volumeStatsAggPeriod requires; a
        negative period turns measuring off for them too.
        """
        between = min(settings.volume_stats_agg_period, between) or between
        return cls(
            StorageSources(
                runtime=runtime,
                images=images,
                status=cache.status,
                pod=pods.get,
                disks=DiskMeter(clock, between, patient=True),
                root_dir=root_dir,
                pod_logs_dir=settings.pod_logs_dir,
            )
        )

    def __post_init__(self) -> None:
        self._apart: bool | None = None
        self._silent = False
        """It has been logged that the runtime does not answer."""

    async def measure(self, desired: Mapping[str, bool]) -> dict[str, PodStorage]:
        """Usage of pods by uid; those not running, or not measured yet, are omitted.

        Args:
            desired: uid -> whether writable layers count.
        """
        running = {uid: pod for uid in desired if (pod := self._running(uid)) is not None}
        specs = {uid: self.sources.pod(uid) for uid in running}
        # off the loop: a pod may have tens of thousands of volumes
        plans = await asyncio.to_thread(self._plans, running, specs)
        layered = [pod for uid, pod in running.items() if desired[uid] and uid in plans]
        # small pods first: a very large one must not keep others from being measured
        fair = sorted((list(plan.paths()) for plan in plans.values()), key=len)
        measured, layers = await run_together(
            self.sources.disks.measure(path for paths in fair for path in paths),
            self._layers(layered),
        )
        apart = await self._layers_apart() if layered else True

        def all_uses() -> dict[str, PodStorage]:
            return {
                uid: disk_plan.pod_storage(
                    disk_plan.pod_disk(plan, measured), layers.get(uid, {}), layers_apart=apart
                )
                for uid, plan in plans.items()
            }

        return await asyncio.to_thread(all_uses)

    async def close(self) -> None:
        """End measurements of disks that are under way."""
        await self.sources.disks.close()

    def _running(self, uid: str) -> RunningPod | None:
        status = self.sources.status(uid)
        return RunningPod(status) if status is not None and status.has_ready_sandbox else None

    def _plans(
        self, pods: Mapping[str, RunningPod], specs: Mapping[str, Pod | None]
    ) -> dict[str, PodTrees]:
        found = {}
        for uid, pod in pods.items():
            plan = disk_plan.trees(
                pod.ref,
                specs[uid],
                tuple(container.name for container in pod.containers),
                f"{self.sources.root_dir}/pods",
                self.sources.pod_logs_dir,
                max_volumes=None,
            )
            if plan is not None:
                found[uid] = plan
        return found

    async def _layers(self, pods: list[RunningPod]) -> dict[str, dict[str, int]]:
        """Size of writable layers of running containers: uid -> container name -> bytes."""
        if not pods:
            return {}
        try:
            listed, too_large = await self._stats(pods)
        except CRIError as error:
            self._log_once(error)
            return {}
        if too_large is not None:
            self._log_once(too_large)
        else:
            self._silent = False
        containers = usage.from_containers(listed).containers
        found: dict[str, dict[str, int]] = {}
        for pod in pods:
            for container in pod.containers:
                reported = containers.get(container.id)
                if reported is not None and reported.layer is not None:
                    found.setdefault(pod.ref.uid, {})[container.name] = reported.layer.used or 0
        return found

    async def _stats(
        self, pods: list[RunningPod]
    ) -> tuple[list[cri.ContainerStats], ResourceExhausted | None]:
        """Also why a pod is omitted: what its owner wrote makes the answer too large.

        Other pods' annotations must not keep a pod from being measured: when the answer for all is
        too large, the runtime is queried about one pod at a time.
        """
        if len(pods) > REQUESTED_ONE_BY_ONE:
            try:
                return list(await self.sources.runtime.list_container_stats()), None
            except ResourceExhausted as error:
                log.debug("each pod's numbers are requested separately", extra={"why": str(error)})
        reported: list[cri.ContainerStats] = []
        too_large: ResourceExhausted | None = None
        for start in range(0, len(pods), REQUESTED_ONE_BY_ONE):
            some = pods[start : start + REQUESTED_ONE_BY_ONE]
            for answer in await run_together(*(self._stats_of(pod) for pod in some)):
                if isinstance(answer, ResourceExhausted):
                    too_large = answer
                else:
                    reported += answer
        return reported, too_large

    async def _stats_of(self, pod: RunningPod) -> Sequence[cri.ContainerStats] | ResourceExhausted:
        try:
            return await self.sources.runtime.list_container_stats(
                cri.ContainerStatsFilter(pod_sandbox_id=pod.sandbox.id)
            )
        except ResourceExhausted as error:
            return error

    async def _layers_apart(self) -> bool:
        """Whether images and layers are on a file system of their own; queried until known.

        Source: the kubelet's HasDedicatedImageFs.
        """
        if self._apart is None:
            try:
                info = await self.sources.images.image_fs_info()
            except CRIError as error:
                self._log_once(error)
                return True
            self._apart = await asyncio.to_thread(_apart, info, self.sources.root_dir)
        return self._apart is not False

    def _log_once(self, error: CRIError) -> None:
        level = logging.DEBUG if self._silent else logging.WARNING
        self._silent = True
        log.log(level, "writable layers can't be measured", extra={"why": str(error)})


def _apart(info: cri.ImageFsInfoResponse, root_dir: str) -> bool | None:
    """None: not known now."""
    images = [each.fs_id.mountpoint for each in info.image_filesystems[:1]]
    layers = [each.fs_id.mountpoint for each in info.container_filesystems[:1]]
    try:
        devices = {Path(path).stat().st_dev for path in (root_dir, *images, *layers)}
    except OSError:
        return None
    return len(devices) > 1 if images else None
