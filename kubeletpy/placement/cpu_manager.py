"""Keeps who has which CPUs, on the disk too, and gives containers theirs.

What is decided is decided by :class:`~kubeletpy.placement.static_cpus.StaticCpus`. One allocation
is one write. Must never let a pod be let in whose CPUs are not on the disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from kubeletpy.api import types as api
from kubeletpy.metrics.placement import CONTAINER, PHYSICAL_CPU, UNCORE_CACHE, PlacementMetrics
from kubeletpy.placement.cpu_state import CpuState, read_cpu_state, write_cpu_state
from kubeletpy.placement.hints import Hint, Hints
from kubeletpy.placement.id_lists import format_ids
from kubeletpy.placement.refusal import AllocationRefused, not_written
from kubeletpy.placement.state_file import StateFile
from kubeletpy.placement.state_json import StateError
from kubeletpy.placement.static_cpus import CPU, StaticCpus, exclusive_cpus
from kubeletpy.pods.granted import Placement
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.additions import ContainerAdditions

log = logging.getLogger(__name__)

FILE = "cpu_manager_state"
NONE = "none"


class CpuManager:
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
        quota_off: who has CPUs of its own has no CFS quota (gate
            DisableCPUQuotaWithExclusiveCPUs).
        """
        self._policy = policy
        self._file = StateFile(root_dir / FILE)
        self._metrics = metrics
        self._subscribers: list[Callable[[], None]] = []
        self._quota_off = quota_off
        self.state = CpuState(NONE) if policy is None else policy.initial()

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when containers that run may have to move; it must not block."""
        self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Go on with what the file says. Raises StateUnusable."""
        text = self._file.read()
        if text is not None:
            self.state = self._checked(text)
        try:
            await self._file.write(write_cpu_state(self.state))
        except OSError as error:
            raise self._file.unusable(error.strerror or str(error)) from error
        self._show()

    async def close(self) -> None:
        """Have written what is to be written."""
        await self._file.close()

    # -- ResourceProvider -----------------------------------------------------------------------

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """See ResourceProvider."""
        return {} if self._policy is None else self._policy.hints(self.state, pod, container)

    async def allocate(self, pod: Pod, container: api.Container, hint: Hint) -> None:
        """See ResourceProvider."""
        policy, name = self._policy, container["name"]
        if policy is None or not exclusive_cpus(pod, container):
            return
        self._metrics.cpu_requests.inc()
        try:
            before = self.state
            self.state = policy.allocate(before, pod, container, hint)
            if self.state is not before:
                await self._write_given(pod, name)
        except AllocationRefused:
            self._metrics.cpu_errors.inc()
            self._metrics.allocation_errors.labels(CPU, "node").inc()
            if policy.options.full_cores:
                self._metrics.not_aligned.labels(CONTAINER, PHYSICAL_CPU).inc()
            raise
        if policy.options.full_cores:
            self._metrics.aligned.labels(CONTAINER, PHYSICAL_CPU).inc()

    def release(self, uids: Collection[str]) -> None:
        """See ResourceProvider."""
        before = self.state
        self.state = before.without_all_but(uids)
        if self.state is not before:
            gone = sorted(before.entries.keys() - self.state.entries.keys())
            log.info(
                "CPUs are free again", extra={"pods": gone, "pool": format_ids(self.state.pool)}
            )
            self._file.write_soon(write_cpu_state(self.state))
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
        mine = self.placement(pod.uid, container["name"])
        placement = replace(
            given.placement, cpuset_cpus=mine.cpuset_cpus, no_cfs_quota=mine.no_cfs_quota
        )
        return replace(given, placement=placement)

    def placement(self, uid: str, container: str) -> Placement:
        """The CPUs that a container runs on, and whether it has a CFS quota."""
        own = self.state.of(uid, container)
        return Placement(
            cpuset_cpus=format_ids(self.cpus_of(uid, container)),
            no_cfs_quota=own is not None and self._quota_off,
        )

    def cpus_of(self, uid: str, container: str) -> frozenset[int]:
        """The CPUs that a container runs on; empty: cpuManagerPolicy is none."""
        own = self.state.of(uid, container)
        return self.state.pool if own is None else own

    def has_exclusive(self, uid: str) -> bool:
        """Whether any container of a pod has CPUs of its own, and the pod therefore no quota."""
        return self._quota_off and bool(self.state.entries.get(uid))

    # -- inside ---------------------------------------------------------------------------------

    def _checked(self, text: str) -> CpuState:
        try:
            found = read_cpu_state(text)
        except StateError as error:
            raise self._file.unusable(error) from error
        if found.policy != self.state.policy:
            raise self._file.unusable(
                f'cpuManagerPolicy is "{self.state.policy}", and the CPUs in it were given by '
                f'"{found.policy}"'
            )
        if self._policy is None or (not found.pool and not found.entries):
            return self.state
        if why := self._policy.problem(found):
            raise self._file.unusable(why)
        return found

    async def _write_given(self, pod: Pod, container: str) -> None:
        given = self.state.of(pod.uid, container) or frozenset()
        try:
            await self._file.write(write_cpu_state(self.state))
        except OSError as error:
            self.state = self.state.taken_back(pod.uid, container)
            self._file.write_soon(write_cpu_state(self.state))
            raise not_written(FILE, error) from error
        finally:
            self._changed()
        log.info(
            "CPUs given",
            extra={"pod": pod.key, "container": container, "cpus": format_ids(given)},
        )
        self._metrics.allocations.labels(CPU, "node").inc()
        self._metrics.assignments.labels(CPU, "node_exclusive").inc()
        if self._policy is not None and self._policy.in_one_cache(given):
            self._metrics.aligned.labels(CONTAINER, UNCORE_CACHE).inc()
        self._show()

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
