"""Carry out a resize: memory first, then cpu, each in an order that never exceeds the limits.

A volume in memory shrinks before memory limits are changed, and grows after them. An error stops
the resize where it is; what was done is recorded (:class:`ResourcesInEffect` reads the records),
and the next sync goes on with the rest. Must never decide what is to be changed.

Source: docs/reference/behaviour.md, c10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, replace
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import Placement, Pod, PodLimits, PodLimitsError
from kubeletpy.pods.resources import VolumeSizeError
from kubeletpy.pods.runtime_status import PodRuntimeStatus, StartError, SyncAction
from kubeletpy.remote.errors import Code, CRIError, NotFound, Unimplemented
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.sync_run import NotDesired, SyncRun
from kubeletpy.runtime_manager.config.resources import NO_QUOTA, container_resources
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resize import (
    ContainerUpdate,
    InEffect,
    ResizableResource,
    ResizePlan,
    VolumeUpdate,
    effective_resources,
    merged,
)
from kubeletpy.runtime_manager.plan.resize_steps import (
    applied,
    difference,
    pod_steps,
    refusal,
    sandbox_resources,
    shrinking_containers,
    shrinking_pod_memory,
)
from kubeletpy.runtime_manager.protocol import (
    ActuatedResources,
    PodCgroupLimits,
    ResizeVolume,
    actuated_containers,
)

logger = logging.getLogger(__name__)

RESIZE_ERROR = "ResizePodInPlaceError"


class ResizeFailed(Exception):
    """A resize could not be carried out; the message is for the pod's conditions and events."""


class Resizer(Component):
    """Carries out the resizes that the plans of syncs contain."""

    runtime: RuntimeService
    mutations: Mutations
    # The resources that pods were last given.
    records: ActuatedResources
    # Reads and writes the limits of pods' own cgroups.
    limits: PodCgroupLimits
    settings: RuntimeSettings
    metrics: PodStartMetrics
    # Gives a volume in memory another size.
    resize_volume: ResizeVolume
    # Where a container runs, by its pod and its name.
    placement: Callable[[Pod, str], Placement]

    async def resize(self, run: SyncRun) -> None:
        """Bring what runs in line with what it should have. A failure does not end the sync."""
        if run.plan.resize.empty:
            return
        loop = asyncio.get_running_loop()
        started, error = loop.time(), None
        try:
            with span(TraceCall.RESIZE, run.pod.name, milestone=True):
                await _Resize(run, self).carry_out()
            run.resize_done = True
        except (ResizeFailed, PodLimitsError, CRIError, ValueError) as failure:
            error = StartError(RESIZE_ERROR, str(failure))
            logger.info("resize failed", extra={"pod": run.pod.key, "error": str(failure)})
        metric = self.metrics.pod_resize_duration
        metric.labels("false" if error else "true").observe((loop.time() - started) * 1000)
        run.resize_error = error.message if error is not None else ""
        run.add(SyncAction.RESIZE_POD_IN_PLACE, run.pod.description, error, run.plan.resize.pod)


class _Resize(Component):
    """One resize in progress."""

    run: SyncRun
    resizer: Resizer

    def __post_init__(self) -> None:
        self._current = PodLimits()

    async def carry_out(self) -> None:
        """Do all of it. Raises what a failure is."""
        run, plan = self.run, self.run.plan.resize
        desired = self.resizer.limits.requested(run.pod)
        if desired is not None:
            self._current = self.resizer.limits.current(run.pod)
        await self._check_memory(desired)
        for volume in plan.volumes.shrinking:
            await self._finish(partial(self._remount, volume))
        await self._change(ResizableResource.MEMORY, desired)
        for volume in plan.volumes.growing:
            await self._finish(partial(self._remount, volume))
        await self._change(ResizableResource.CPU, desired)
        if plan.pod_level is not None:
            self.resizer.records.set_pod_level(run.pod.uid, plan.pod_level)

    async def _change(self, resource: ResizableResource, desired: PodLimits | None) -> None:
        """Change one resource of the containers and of the pod."""
        plan = self.run.plan.resize
        updates = plan.updates(resource)
        steps = None
        if desired is not None and (updates or plan.pod):
            steps = pod_steps(resource, self._current, desired)
        for step in steps.before if steps else ():
            await self._finish(partial(self._limit_pod, resource, step))
        for update in updates:
            await self._finish(partial(self._update, update))
        for step in steps.after if steps else ():
            await self._finish(partial(self._limit_pod, resource, step))

    # -- volumes -----------------------------------------------------------------------------

    async def _remount(self, volume: VolumeUpdate) -> None:
        pod = self.run.pod
        try:
            await self.resizer.resize_volume(pod, volume.name, volume.bytes)
        except VolumeSizeError as error:
            raise ResizeFailed(f"failed to resize volume {volume.name}: {error}") from error
        self.resizer.records.set_volume(pod.uid, volume.name, volume.size)

    # -- memory in use -----------------------------------------------------------------------

    async def _check_memory(self, desired: PodLimits | None) -> None:
        """Refuse what would cause an OOM kill; best effort, the use may grow meanwhile."""
        run, plan = self.run, self.run.plan.resize
        shrinking = shrinking_containers(plan.memory)
        pod_limit = 0
        if desired is not None and (plan.memory or plan.pod):
            pod_limit = shrinking_pod_memory(self._current, desired)
        pod_usage = self.resizer.limits.memory_usage(run.pod) if pod_limit else 0
        usages = {name: await self._usage(update) for name, update in shrinking.items()}
        if why := refusal(pod_limit, pod_usage, shrinking, usages):
            raise ResizeFailed(why)

    async def _usage(self, update: ContainerUpdate) -> int | None:
        try:
            stats = await self.resizer.runtime.container_stats(update.id)
        except CRIError as error:
            raise ResizeFailed(
                f'unable to read memory usage for pod "{self.run.pod.description}": {error}'
            ) from error
        memory = stats.memory
        if memory.HasField("usage_bytes"):
            return memory.usage_bytes.value
        return memory.working_set_bytes.value if memory.HasField("working_set_bytes") else None

    # -- the pod -----------------------------------------------------------------------------

    async def _limit_pod(self, resource: ResizableResource, step: PodLimits) -> None:
        """The runtime may refuse; it gets the old limits back when the kernel refuses."""
        after = applied(self._current, step)
        try:
            await self._notify_runtime(after)
        except CRIError as error:
            raise ResizeFailed(
                "failed to notify runtime for UpdatePodSandboxResources "
                f"(resource={resource}); resize rejected: {error}"
            ) from error
        try:
            await self.resizer.limits.write(self.run.pod, step)
        except PodLimitsError:
            try:
                await self._notify_runtime(self._current)
            except CRIError as error:
                logger.warning(
                    "the runtime could not be given the pod's old limits again",
                    extra={"pod": self.run.pod.key, "error": str(error)},
                )
            raise
        self._current = after

    async def _notify_runtime(self, limits: PodLimits) -> None:
        run = self.run
        overhead, resources = sandbox_resources(run.pod, limits, self.resizer.settings)
        try:
            await self.resizer.runtime.update_pod_sandbox_resources(
                run.sandbox_id, overhead, resources
            )
        except Unimplemented:
            pass  # only the cgroup counts, the runtime's copy is optional
        except CRIError as error:
            # containerd 2.2 has the call, but no error code for what it can't do
            if error.code is not Code.UNKNOWN or "not implemented" not in error.details:
                raise

    # -- containers --------------------------------------------------------------------------

    async def _update(self, update: ContainerUpdate) -> None:
        run = self.run
        known = self.resizer.records.get(run.pod.uid, update.name)
        after = merged(known, update.desired, update.resource)
        container = {**update.container, "resources": after}
        resources = container_resources(
            run.pod,
            container,  # type: ignore[arg-type]
            update.kind,
            self.resizer.settings,
        )
        if self.resizer.placement(run.pod, update.name).no_cfs_quota and resources.cpu_period:
            resources.cpu_quota = NO_QUOTA
        if known is None and update.resource is ResizableResource.MEMORY:
            # 0 leaves unchanged what is not known here; the next update sets it
            resources.cpu_shares = resources.cpu_quota = resources.cpu_period = 0
        record = run.status.by_id(update.id)
        run.draft.touch(update.id, record.sandbox_id if record else run.sandbox_id)
        try:
            await self.resizer.runtime.update_container_resources(update.id, resources)
        except NotFound as error:
            raise ResizeFailed(f"container {update.name} was removed: {error}") from error
        self.resizer.records.set(run.pod.uid, update.name, after)
        if update.name not in run.resized:
            run.resized.append(update.name)

    async def _finish(self, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Make one change, seen through and recorded even if the sync is cut short meanwhile.

        Raises NotDesired: the pod is to end.
        """
        if self.run.request.is_terminating():
            raise NotDesired
        await self.resizer.mutations.finish(self.run.pod.uid, change())


# The records of what is in effect


def record_supplied(records: ActuatedResources, pod: Pod, container: api.Container) -> None:
    """Record what a container is about to be created with.

    Before it is created: an agent that dies then, and comes back, does not treat it as still to be
    resized. Raises ValueError.
    """
    supplied = effective_resources(pod, container)
    if supplied or records.get(pod.uid, container["name"]) is not None:
        records.set(pod.uid, container["name"], supplied)


class ResourcesInEffect(Component):
    """Collects the resources that a pod is known to have, for the decisions of one sync.

    The limits of a pod's own cgroup are read when the agent first finds the pod running: a
    previous agent may have died during a resize. They are read again after a resize that failed.
    Must never change a limit.
    """

    records: ActuatedResources
    limits: PodCgroupLimits
    settings: RuntimeSettings

    def __post_init__(self) -> None:
        self._right: set[str] = set()
        """uids of pods whose cgroup has the limits it should have, according to the records."""

    def pod_in_effect(self, pod: Pod, status: PodRuntimeStatus) -> InEffect:
        """The resources in effect for a pod."""
        recorded = self.recorded(pod)
        if recorded.pod_level is None and pod.spec.get("resources") and not status.empty:
            # it is not known what they were: lost, or it had none until now
            self._right.discard(pod.uid)
        return replace(recorded, pod_limits_differ=self._difference(pod, status))

    def recorded(self, pod: Pod) -> InEffect:
        """The resources in effect according to the records alone."""
        return InEffect(
            containers=actuated_containers(self.records, pod),
            pod_level=self.records.get_pod_level(pod.uid),
            volumes=self.records.volumes(pod.uid),
            settings=self.settings,
        )

    def note(self, pod: Pod, plan: ResizePlan) -> None:
        """Record what a plan found to be in effect without a record."""
        for name, resources in plan.adopted:
            self.records.set(pod.uid, name, resources)
        for name, size in plan.volumes.adopted:
            self.records.set_volume(pod.uid, name, size)
        if plan.empty and plan.pod_level is not None:
            self.records.set_pod_level(pod.uid, plan.pod_level)

    def resized(self, uid: str, worked: bool) -> None:
        """A resize was carried out: only if all of it worked the pod's limits need no check."""
        (self._right.add if worked else self._right.discard)(uid)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop what is remembered about pods that the runtime no longer has."""
        self._right.intersection_update(uids)

    def _difference(self, pod: Pod, status: PodRuntimeStatus) -> str:
        if pod.uid in self._right:
            return ""
        if status.empty:  # its cgroup has just been created
            self._right.add(pod.uid)
            return ""
        if not status.running_containers:
            return ""
        try:
            desired = self.limits.requested(pod)
            differs = "" if desired is None else difference(self.limits.current(pod), desired)
        except PodLimitsError as error:
            logger.info("limits not known", extra={"pod": pod.key, "why": str(error)})
            differs = ""
        if not differs:
            self._right.add(pod.uid)
        return differs
