"""Keeps track, also on disk, of which container has which CPUs, and assigns them.

:class:`~kubeletpy.resources.placement.static_cpus.StaticCpus` makes the decisions. One allocation is one
write. Must never let a pod be admitted whose CPUs are not on the disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.metrics.resources import CONTAINER, PHYSICAL_CPU, UNCORE_CACHE, PlacementMetrics
from kubeletpy.pods.pod import HeldResource, Placement, Pod
from kubeletpy.pods.resources import pod_level_set
from kubeletpy.resources.placement.cpu_state import CpuState, read_cpu_state, write_cpu_state
from kubeletpy.resources.placement.hints import Hint
from kubeletpy.resources.placement.id_lists import format_ids
from kubeletpy.resources.placement.pod_pool import containers_in_order, shares_part
from kubeletpy.resources.placement.refusal import AllocationRefused, not_written
from kubeletpy.resources.placement.state_file import Form, StateFile
from kubeletpy.resources.placement.static_cpus import CPU, StaticCpus, exclusive_cpus
from kubeletpy.resources.placement.static_manager import StaticManager
from kubeletpy.runtime_manager.additions import ContainerAdditions

log = logging.getLogger(__name__)

NONE = "none"
_FORM = Form("cpu_manager_state", "cpuManagerPolicy", "CPUs", read_cpu_state, write_cpu_state)


class CpuManager(StaticManager[CpuState, StaticCpus]):
    """A provider of CPUs (``ResourceProvider`` and ``ContainerProvider``)."""

    name = CPU

    def __init__(
        self,
        policy: StaticCpus | None,
        root_dir: Path,
        metrics: PlacementMetrics,
        *,
        quota_off: bool = True,
    ) -> None:
        """Args:
        policy: None: cpuManagerPolicy none.
        quota_off: a container with CPUs of its own has no CFS quota (gate
            DisableCPUQuotaWithExclusiveCPUs).
        """
        state = CpuState(NONE) if policy is None else policy.initial()
        file = StateFile(root_dir, _FORM)
        super().__init__(
            policy, state, file, metrics, requests=metrics.cpu_requests, errors=metrics.cpu_errors
        )
        self._subscribers: list[Callable[[], None]] = []
        self._quota_off = quota_off

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when running containers may have to move; it must not block."""
        self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Continue from the file's content. Raises StateUnusable."""
        await super().start()
        self._show()

    # -- ResourceProvider -----------------------------------------------------------------------

    def _allocate(
        self, policy: StaticCpus, pod: Pod, container: api.Container, hint: Hint
    ) -> CpuState:
        """Counts, too, whether a container got whole cores, if it must."""
        counted = policy.options.full_cores
        try:
            state = policy.allocate(self.state, pod, container, hint)
        except AllocationRefused:
            if counted:
                self._metrics.not_aligned.labels(CONTAINER, PHYSICAL_CPU).inc()
            raise
        if counted:
            self._metrics.aligned.labels(CONTAINER, PHYSICAL_CPU).inc()
        return state

    async def settle(self, pod: Pod) -> None:
        """See ResourceProvider."""
        names = self._unsettled.pop(pod.uid, [])
        source = self._source(pod)
        try:
            await self._file.write(self.state)
        except OSError as error:
            for name in names:
                self.state = self.state.without_container(pod.uid, name)
                self._count_refusal(source)
            self._file.write_soon(self.state)
            raise not_written(_FORM.name, error) from error
        finally:
            self._changed()
        for name in names:
            self._note(pod, name, source)
        booked = (self.state.container_cpus(pod.uid, name) or frozenset() for name in names)
        for cpus in [self.state.pod_cpus(pod.uid)] if source == "pod" else booked:
            if self._policy is not None and self._policy.in_one_cache(cpus):
                self._metrics.aligned.labels(CONTAINER, UNCORE_CACHE).inc()
        self._show()

    def release(self, uids: Collection[str]) -> None:
        """See ResourceProvider."""
        for uid in self._unsettled.keys() - set(uids):
            del self._unsettled[uid]
        before = self.state
        self.state = before.without_all_but(uids)
        if self.state is not before:
            left = sorted({*before.entries, *before.pools} - {*self.state.entries})
            log.info(
                "CPUs are free again", extra={"pods": left, "pool": format_ids(self.state.pool)}
            )
            self._file.write_soon(self.state)
            self._show()
            self._changed()

    # -- what containers get --------------------------------------------------------------------

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """The CPUs that a container runs on, for its config."""
        mine = self.placement(pod, container["name"])
        placement = replace(
            given.placement, cpuset_cpus=mine.cpuset_cpus, no_cfs_quota=mine.no_cfs_quota
        )
        return replace(given, placement=placement)

    def placement(self, pod: Pod, container: str) -> Placement:
        """The CPUs that a container runs on, and whether it has a CFS quota."""
        return Placement(
            cpuset_cpus=format_ids(self.cpus_of(pod.uid, container)),
            no_cfs_quota=self._quota_off and self.owns(pod, container),
        )

    def owns(self, pod: Pod, container: str) -> bool:
        """See StaticManager."""
        held = self.state.container_cpus(pod.uid, container) is not None
        own = partial(exclusive_cpus, pod, pod_level=True)
        return held and not shares_part(pod, container, own)

    def cpus_of(self, uid: str, container: str) -> frozenset[int]:
        """The CPUs that a container runs on; empty: cpuManagerPolicy is none."""
        own = self.state.container_cpus(uid, container)
        return self.state.pool if own is None else own

    def own_cpus(self, pod: Pod, container: str) -> frozenset[int]:
        """The CPUs that are exclusive to a container."""
        return self.cpus_of(pod.uid, container) if self.owns(pod, container) else frozenset()

    def pool_of(self, uid: str) -> frozenset[int]:
        """The CPUs of a pod that is placed as one; empty: it is not."""
        return self.state.pools.get(uid, frozenset())

    def allocatable(self) -> frozenset[int]:
        """The CPUs that are, or can be, exclusive to a container."""
        if self._policy is None:
            return frozenset()
        return self._policy.topology.ids - self._policy.reserved

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """Which CPUs each container runs on; nothing under cpuManagerPolicy none."""
        if self._policy is None:
            return []
        cpus, found = self._policy.topology.cpus, []
        for container in containers_in_order(pod):
            name = container["name"]
            held = self.state.container_cpus(pod.uid, name)
            nodes = tuple(sorted({cpus[each].numa for each in held or () if each in cpus}))
            kind = "shared" if held is None else "shared in the pod"
            kind = "its own" if self.owns(pod, name) else kind
            what = f"{format_ids(self.cpus_of(pod.uid, name))}, {kind}"
            found.append(HeldResource(name, CPU, what, nodes))
        return found

    def has_no_quota(self, pod: Pod) -> bool:
        """Whether a pod has no CFS quota, because of the CPUs that its containers own.

        One container suffices; if it has pod-level resources, which limit all, each must.
        """
        own = [self.owns(pod, container["name"]) for container in containers_in_order(pod)]
        return self._quota_off and (all(own) if pod_level_set(pod) else any(own))

    # -- inside ---------------------------------------------------------------------------------

    def _note(self, pod: Pod, container: str, source: str) -> None:
        given = self.state.container_cpus(pod.uid, container) or frozenset()
        log.info(
            "CPUs given",
            extra={"pod": pod.key, "container": container, "cpus": format_ids(given)},
        )
        self._count_allocation(pod, container, source)

    def _changed(self) -> None:
        for subscriber in self._subscribers:
            subscriber()

    def _show(self) -> None:
        if self._policy is None:
            return
        exclusive = self.state.exclusive
        self._metrics.shared_pool.set(len(self._policy.free(self.state)) * 1000)
        self._metrics.exclusive_cpus.set(len(exclusive))
        cpus = self._policy.topology.cpus
        by_node = Counter(cpus[each].numa for each in exclusive)
        for node in self._policy.topology.nodes:
            self._metrics.exclusive_per_node.labels(str(node)).set(by_node[node])
