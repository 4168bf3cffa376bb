"""Keeps the cgroup tree in step with the pods: creates, limits, removes, and retries.

Creating a cgroup takes a few system calls and is done in place; only killing waits. The cgroup of a
pod that may run is never removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_until
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import (
    NORMAL,
    WARNING,
    EventRecorder,
    EventType,
    node_reference,
)
from kubeletpy.metrics.node import NodeMetrics
from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.pods.runtime_status import SandboxConfigError
from kubeletpy.resources.cgroups.filesystem import as_requested, memory_usage
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import (
    CgroupBusy,
    CgroupError,
    CgroupResources,
    ReservedMemory,
    burstable_cpu,
    memory_kept,
)

log = logging.getLogger(__name__)

REFRESH_S = 60.0
FIRST_WAIT_S, REMOVE_TRIES = 0.01, 7
"""Killed processes take time to exit: 10 ms, doubled up to 640 ms."""


class PodCgroups(Component):
    """Keeps the cgroups of pods, and of groups of pods, in a tree."""

    tree: CgroupTree
    recorder: EventRecorder
    metrics: NodeMetrics
    node_name: str
    active_pods: Callable[[], Sequence[Pod]]
    in_use: Callable[[str], bool]
    """Whether a source has the pod of a uid, or its containers may be running."""
    has_volumes: Callable[[str], bool] = lambda uid: False
    """Whether volumes of a terminated pod are still mounted."""

    def __post_init__(self) -> None:
        self._node = node_reference(self.node_name)
        self._paths: dict[str, str] = {}
        """uid -> path of every pod's cgroup known to exist."""
        self._limited: set[str] = set()
        """uids of pods whose limits this agent has set, or adopted from the one before."""
        self._groups_changed = asyncio.Event()
        self._cpu: dict[str, int] = {}
        """uid -> the pod's share of the Burstable group, in millicores."""
        self._memory: dict[str, tuple[int, int]] = {}
        """uid -> bytes that a Guaranteed, and that a Burstable pod requests (MemoryQoS)."""
        self._kept: tuple[int, int] | None = None
        self._reported: dict[str, str] = {}
        """The last message about each of the node's limits."""
        self._counted_all = False
        self._orphans_known = False
        """Whether the first housekeeping pass is over: ``in_use`` is incomplete before that."""
        self._removing: set[str] = set()
        self._sweep: asyncio.Task[None] | None = None
        self.metrics.cgroup_version.set(self.tree.files.version)

    def parent(self, pod: Pod) -> str:
        """The parent cgroup for a sandbox. Raises SandboxConfigError."""
        try:
            return self.tree.pod_path(pod)
        except CgroupError as error:
            raise SandboxConfigError(str(error)) from error

    # -- pods --------------------------------------------------------------------------------

    def exists(self, pod: Pod) -> bool:
        """Whether the pod's cgroup exists. Raises CgroupError: it cannot have one."""
        return self.tree.files.exists(self.tree.pod_path(pod))

    async def ensure(self, pod: Pod) -> None:
        """Create the pod's cgroup with its limits if it does not exist. Raises CgroupError."""
        if pod.uid in self._removing:
            raise CgroupError(f"the cgroup of an earlier pod of uid {pod.uid} is being removed")
        there = self.exists(pod)
        if there and pod.uid in self._limited:
            return
        self._remember(pod)
        self._refresh_groups()
        path = self.tree.pod_path(pod)
        with self._timed("update" if there else "create"):
            if there:
                self.tree.adopt(pod)
            else:
                self.tree.create_pod(pod)
            await self.tree.files.settle(path)
        self._paths[pod.uid] = path
        self._limited.add(pod.uid)

    def resized(self, pod: Pod) -> None:
        """Account for changed resource requests of a running pod."""
        self._cpu.pop(pod.uid, None)
        self._remember(pod)
        self._refresh_groups()
        try:
            self.tree.protect_pod(pod)
        except CgroupError as error:
            log.warning(
                "the memory that is kept for a resized pod is not what it requests",
                extra={"pod": pod.key, "why": str(error)},
            )

    async def destroy(self, pod: Pod) -> None:
        """Remove the pod's cgroup, killing anything left in it. Raises CgroupError."""
        path = self._paths.get(pod.uid) or self.tree.pod_path(pod)
        await self._destroy(pod.uid, path)

    async def _destroy(self, uid: str, path: str) -> None:
        self._removing.add(uid)
        try:
            with self._timed("destroy"):
                if not self.tree.files.remove(path):
                    await self._remove_tree(path)
                await self.tree.files.released(path)
        finally:
            self._removing.discard(uid)
        self._paths.pop(uid, None)
        self._limited.discard(uid)
        cpu, memory = self._cpu.pop(uid, 0), self._memory.pop(uid, None)
        if cpu or memory is not None:
            self._refresh_groups()

    async def _remove_tree(self, path: str) -> None:
        wait = FIRST_WAIT_S
        for attempt in range(REMOVE_TRIES):
            try:
                await asyncio.to_thread(self.tree.files.remove_tree, path)
                return
            except CgroupBusy:
                if attempt == REMOVE_TRIES - 1:
                    raise
            await asyncio.sleep(wait)
            wait *= 2

    # -- groups ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Limit the node's groups, and refresh them every minute, until cancelled.

        Limits are set every time: a missing cgroup may have appeared, and whoever recreated it (a
        restarted service) did not have them.
        """
        self._paths.update(self.tree.found_pods())
        loop = asyncio.get_running_loop()
        while True:
            self._limit_reserved()
            self._limit_node()
            await self._settle_until(loop.time() + REFRESH_S)
            self._refresh()

    async def _settle_until(self, deadline: float) -> None:
        """Make limits last as they change, until a time of the loop."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            self._groups_changed.clear()
            try:
                await self.tree.files.settle()
            except CgroupError as error:
                log.warning("limits of cgroups do not last", extra={"why": str(error)})
            await wait_until(self._groups_changed, deadline)

    def _limit_node(self) -> None:
        kubepods = self.tree.names.kubepods
        try:
            self.tree.limit_node()
        except CgroupError as error:
            # the pods may use more than that: reported at each attempt
            self._reported.pop(kubepods, None)
            what = f'Failed to update Node Allocatable Limits "{kubepods}"'
            self._failed(kubepods, f"{what}: {error}")
        else:
            self._enforced(kubepods, "Updated Node Allocatable limit across pods")

    def _limit_reserved(self) -> None:
        for reserved in self.tree.options.reserved:
            try:
                self.tree.limit_reserved(reserved)
            except CgroupError as error:
                what = f'{reserved.what} Cgroup Limits on "{reserved.path}"'
                self._failed(reserved.what, f"Failed to enforce {what}: {error}")
            else:
                kind = reserved.what.removesuffix(" Compressible").lower()
                self._enforced(reserved.what, f"Updated limits on {kind} cgroup {reserved.path}")

    def _refresh(self) -> None:
        """Recount the pods, to correct whatever was lost or missed since."""
        self._cpu.clear()
        self._memory.clear()
        self._kept = None  # written again in case somebody changed it
        for pod in self.active_pods():
            self._remember(pod)
        self._counted_all = True
        try:
            self.tree.prepare()
        except CgroupError as error:
            log.warning("cgroups of pods are not as they should be", extra={"why": str(error)})
        self._refresh_groups()
        self._paths = {**self.tree.found_pods(), **self._paths}
        self._sweep_now()

    def _remember(self, pod: Pod) -> None:
        try:
            cpu, memory = burstable_cpu(pod), memory_kept(pod)
        except ValueError:  # reported on the pod itself when its own cgroup is created
            return
        if cpu:
            self._cpu[pod.uid] = cpu
        if any(memory):
            self._memory[pod.uid] = memory

    def _refresh_groups(self) -> None:
        self._groups_changed.set()
        self._refresh_burstable()
        guaranteed = sum(each for each, _ in self._memory.values())
        burstable = sum(each for _, each in self._memory.values())
        qos = self.tree.options.pods.memory_qos
        if qos is not None and qos.tiered:
            self._keep_memory(guaranteed, burstable)
        else:
            self._keep_none()
        if self.tree.options.memory is not None:
            self._reserve_memory(self.tree.options.memory, guaranteed, burstable)

    def _keep_none(self) -> None:
        if self._kept == (0, 0):
            return
        try:
            self.tree.unprotect()
        except CgroupError as error:
            log.warning("memory is still kept for pods", extra={"why": str(error)})
            return
        self._kept = 0, 0

    def _keep_memory(self, guaranteed: int, burstable: int) -> None:
        if not self._counted_all:  # as for cpu: nothing is taken away yet
            before = self.tree.protected() if self._kept is None else self._kept
            guaranteed, burstable = max(guaranteed, before[0]), max(burstable, before[1])
        if (guaranteed, burstable) == self._kept:
            return
        try:
            self.tree.protect(guaranteed, burstable)
        except CgroupError as error:
            log.warning("memory that pods request is not kept for them", extra={"why": str(error)})
            return
        self._kept = guaranteed, burstable
        self.metrics.memory_min.set(guaranteed)
        self.metrics.memory_low.set(burstable)

    def _reserve_memory(self, reserved: ReservedMemory, guaranteed: int, burstable: int) -> None:
        for quality, limit in reserved.limits(guaranteed, burstable).items():
            try:
                # until all are counted, nothing reserved for others is given away
                self.tree.limit_group(quality, limit, only_less=not self._counted_all)
            except CgroupError as error:
                log.warning(
                    "memory that pods of higher QoS classes request is not reserved for them",
                    extra={"group": quality.value, "why": str(error)},
                )

    def _refresh_burstable(self) -> None:
        # after a start pods are found one by one: until all are counted, nothing is taken away
        only_more = not self._counted_all
        try:
            with self._timed("update"):
                self.tree.set_burstable(sum(self._cpu.values()), only_more=only_more)
        except CgroupError as error:
            log.warning("the Burstable group keeps its cpu share", extra={"why": str(error)})

    # -- orphans -----------------------------------------------------------------------------

    def sweep_soon(self) -> None:
        """Remove the cgroups of pods that were removed, in the background. Never blocks.

        Must not be called before all sources are ready and the runtime has been listed.
        """
        self._orphans_known = True
        self._sweep_now()

    async def close(self) -> None:
        """Wait for a sweep in progress."""
        if self._sweep is not None:
            await asyncio.wait([self._sweep])
        await self.tree.files.close()

    def _sweep_now(self) -> None:
        if not self._orphans_known or (self._sweep is not None and not self._sweep.done()):
            return
        if any(not self.in_use(uid) for uid in self._paths):
            self._sweep = asyncio.get_running_loop().create_task(self._sweep_orphans())

    async def _sweep_orphans(self) -> None:
        for uid, path in list(self._paths.items()):
            if self.in_use(uid):
                continue
            try:
                if self.has_volumes(uid):  # memory of a tmpfs would be charged to all pods
                    self.tree.starve(path)
                else:
                    await self._destroy(uid, path)
            except CgroupError as error:
                log.warning(
                    "the cgroup of a removed pod could not be removed",
                    extra={"uid": uid, "why": str(error)},
                )

    # -- reporting ---------------------------------------------------------------------------

    def _enforced(self, what: str, message: str) -> None:
        self._record_event_once(what, NORMAL, Reason.NODE_ALLOCATABLE_ENFORCED, message)

    def _failed(self, what: str, message: str) -> None:
        self._record_event_once(what, WARNING, Reason.FAILED_NODE_ALLOCATABLE_ENFORCEMENT, message)

    def _record_event_once(self, what: str, kind: EventType, reason: Reason, message: str) -> None:
        if self._reported.get(what) != message:
            self.recorder.event(self._node, kind, reason, message)
        self._reported[what] = message

    @contextlib.contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            yield
        finally:
            elapsed = loop.time() - started
            self.metrics.cgroup_manager_duration.labels(operation).observe(elapsed)


class KernelPodLimits(Component):
    """Changes limits of running pods (:class:`kubeletpy.runtime_manager.protocol.PodCgroupLimits`).

    The caller decides on the limits, and on the order in which they change.
    """

    tree: CgroupTree
    cgroups: PodCgroups

    def requested(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod's spec requests. Raises PodLimitsError."""
        with _as_pod_limits_error():
            return _plain(self.tree.pod_limits(pod))

    def current(self, pod: Pod) -> PodLimits:
        """The limits that the pod's cgroup has now. Raises PodLimitsError."""
        with _as_pod_limits_error():
            desired = self.tree.pod_limits(pod)
            version = self.tree.files.version
            return _plain(as_requested(version, self.tree.read_limits(pod), desired))

    def memory_usage(self, pod: Pod) -> int:
        """Bytes that the pod uses now. Raises PodLimitsError."""
        with _as_pod_limits_error():
            files = self.tree.files
            used = memory_usage(files.version, partial(files.read_file, self.tree.pod_path(pod)))
            if used is None:
                raise CgroupError("missing pod memory usage")
            return used

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set those of the limits that are not None. Raises PodLimitsError.

        The kernel reclaims memory before the write returns, so this waits in a thread.
        """
        resources = CgroupResources(
            shares=limits.shares,
            quota_us=limits.quota_us,
            period_us=limits.period_us,
            memory=limits.memory,
        )
        with _as_pod_limits_error():
            path = self.tree.pod_path(pod)
            if limits.memory is None:
                self.tree.files.write(path, resources)
            else:
                await asyncio.to_thread(self.tree.files.write, path, resources)
            await self.tree.files.settle(path)
        self.cgroups.resized(pod)


def _plain(limits: CgroupResources) -> PodLimits:
    return PodLimits(limits.shares, limits.quota_us, limits.period_us, limits.memory or None)


@contextmanager
def _as_pod_limits_error() -> Iterator[None]:
    try:
        yield
    except CgroupError as error:
        raise PodLimitsError(str(error)) from error
