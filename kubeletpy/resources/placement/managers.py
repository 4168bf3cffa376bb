"""The managers of CPUs and memory: each allocates its resource, also on the disk, to containers.

:class:`~kubeletpy.resources.placement.static_cpus.StaticCpus` and
:class:`~kubeletpy.resources.placement.static_memory.StaticMemory` make the decisions. One
allocation is one write. No pod is admitted before its CPUs and memory are on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.base.tasks import wait_within
from kubeletpy.metrics.resources import CONTAINER, PHYSICAL_CPU, UNCORE_CACHE
from kubeletpy.pods.pod import HeldResource, Placement, Pod
from kubeletpy.pods.resources import pod_level_set
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.placement import model
from kubeletpy.resources.placement.state import (
    Block,
    CpuState,
    MemoryState,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
)
from kubeletpy.resources.placement.static_cpus import CPU, StaticCpus, exclusive_cpus
from kubeletpy.resources.placement.static_manager import Form, StaticManager
from kubeletpy.resources.placement.static_memory import StaticMemory
from kubeletpy.runtime_manager.protocol import ContainerAdditions

log = logging.getLogger(__name__)

NO_CPU_POLICY = "none"
_CPU_FORM = Form(
    "cpu_manager_state",
    "cpuManagerPolicy",
    "CPUs",
    read_cpu_state,
    write_cpu_state,
    CpuState(NO_CPU_POLICY),
    lambda metrics: metrics.cpu_requests,
    lambda metrics: metrics.cpu_errors,
)


class CpuManager(StaticManager[CpuState, StaticCpus]):
    """A provider of CPUs (``ResourceProvider`` and ``ContainerProvider``)."""

    name = CPU
    form = _CPU_FORM

    quota_off: bool = True
    """A container with CPUs of its own has no CFS quota (gate DisableCPUQuotaWithExclusiveCPUs)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call a function when running containers may have to move; it must not block."""
        self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Continue from the file's content. Raises StateUnusable."""
        await super().start()
        self._update_metrics()

    # -- ResourceProvider -----------------------------------------------------------------------

    def _allocate(
        self, policy: StaticCpus, pod: Pod, container: api.Container, hint: model.Hint
    ) -> CpuState:
        """Allocate, and count whether a container got whole cores, if it must."""
        counted = policy.options.full_cores
        try:
            state = policy.allocate(self.state, pod, container, hint)
        except model.AllocationRefused:
            if counted:
                self.metrics.not_aligned.labels(CONTAINER, PHYSICAL_CPU).inc()
            raise
        if counted:
            self.metrics.aligned.labels(CONTAINER, PHYSICAL_CPU).inc()
        return state

    async def settle(self, pod: Pod) -> None:
        """Write what was booked for a pod to the disk. Raises AllocationRefused."""
        names = self._unsettled.pop(pod.uid, [])
        source = self._source(pod)
        try:
            await self._file.write()
        except OSError as error:
            for name in names:
                self.state = self.state.without_container(pod.uid, name)
                self._count_refusal(source)
            self._file.write_soon()
            raise model.write_refusal(_CPU_FORM.name, error) from error
        finally:
            self._notify()
        for name in names:
            self._log_allocation(pod, name, source)
        booked = (self.state.container_cpus(pod.uid, name) or frozenset() for name in names)
        for cpus in [self.state.pod_cpus(pod.uid)] if source == "pod" else booked:
            if self.policy is not None and self.policy.in_one_cache(cpus):
                self.metrics.aligned.labels(CONTAINER, UNCORE_CACHE).inc()
        self._update_metrics()

    def release(self, uids: Collection[str]) -> None:
        """Return the CPUs of all other pods to the shared pool."""
        if left := self._keep(uids, self.state.without_all_but(uids)):
            log.info(
                "CPUs are free again",
                extra={"pods": left, "pool": model.format_ids(self.state.pool)},
            )
            self._update_metrics()
            self._notify()

    # -- what containers get --------------------------------------------------------------------

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """The CPUs that a container runs on, for its config."""
        mine = self.placement(pod, container["name"])
        placement = replace(
            supplied.placement, cpuset_cpus=mine.cpuset_cpus, no_cfs_quota=mine.no_cfs_quota
        )
        return replace(supplied, placement=placement)

    def placement(self, pod: Pod, container: str) -> Placement:
        """The CPUs that a container runs on, and whether it has a CFS quota."""
        return Placement(
            cpuset_cpus=model.format_ids(self.cpus_of(pod.uid, container)),
            no_cfs_quota=self.quota_off and self.owns(pod, container),
        )

    def owns(self, pod: Pod, container: str) -> bool:
        """Whether a container has CPUs that no other shares, not even in its pod."""
        held = self.state.container_cpus(pod.uid, container) is not None
        own = partial(exclusive_cpus, pod, pod_level=True)
        return held and not model.shares_part(pod, container, own)

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
        if self.policy is None:
            return frozenset()
        return self.policy.topology.ids - self.policy.reserved

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """Which CPUs each container runs on; nothing under cpuManagerPolicy none."""
        if self.policy is None:
            return []
        cpus, found = self.policy.topology.cpus, []
        for container in model.containers_in_order(pod):
            name = container["name"]
            held = self.state.container_cpus(pod.uid, name)
            nodes = tuple(sorted({cpus[each].numa for each in held or () if each in cpus}))
            kind = "shared" if held is None else "shared in the pod"
            kind = "its own" if self.owns(pod, name) else kind
            what = f"{model.format_ids(self.cpus_of(pod.uid, name))}, {kind}"
            found.append(HeldResource(name, CPU, what, nodes))
        return found

    def has_no_quota(self, pod: Pod) -> bool:
        """Whether a pod has no CFS quota, because of the CPUs that its containers own.

        One container suffices; if it has pod-level resources, which limit all, each must.
        """
        own = [self.owns(pod, container["name"]) for container in model.containers_in_order(pod)]
        return self.quota_off and (all(own) if pod_level_set(pod) else any(own))

    # -- inside ---------------------------------------------------------------------------------

    def _log_allocation(self, pod: Pod, container: str, source: str) -> None:
        cpus = self.state.container_cpus(pod.uid, container) or frozenset()
        log.info(
            "CPUs given",
            extra={"pod": pod.key, "container": container, "cpus": model.format_ids(cpus)},
        )
        self._count_allocation(pod, container, source)

    def _notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber()

    def _update_metrics(self) -> None:
        if self.policy is None:
            return
        exclusive = self.state.exclusive
        self.metrics.shared_pool.set(len(self.policy.free(self.state)) * 1000)
        self.metrics.exclusive_cpus.set(len(exclusive))
        cpus = self.policy.topology.cpus
        by_node = Counter(cpus[each].numa for each in exclusive)
        for node in self.policy.topology.nodes:
            self.metrics.exclusive_per_node.labels(str(node)).set(by_node[node])


TOGETHER_S = 0.02
"""Changes within this time are handled together."""


class RunningContainer(Struct, frozen=True):
    """A running container of a pod that uses the node."""

    id: str
    name: str
    uid: str
    """Its pod's."""


class CpuReconciler(Component):
    """Updates containers in the runtime to the CPUs that they should have.

    Containers without CPUs of their own share a pool, which shrinks and grows while they run. After
    a start it is not known what they last got, so each is updated once.
    """

    runtime: RuntimeService
    running: Callable[[], Iterable[RunningContainer]]
    """Returns the containers to reconcile."""
    cpus_of: Callable[[str, str], frozenset[int]]
    """The CPUs of a container, by uid of its pod and its name."""
    period: float
    """Seconds after which it reconciles even without a reason."""

    def __post_init__(self) -> None:
        self._due = asyncio.Event()
        self._sent: dict[str, str] = {}
        """The CPUs last sent to the runtime, by id of the container."""
        self._logged: set[str] = set()
        """Containers whose failure has been logged."""

    def reconcile_soon(self, uid: str = "") -> None:
        """Reconcile soon: other containers run, or they have other CPUs. ``uid`` is ignored."""
        self._due.set()

    async def run(self) -> None:
        """Reconcile when that is due, and after each period, until cancelled."""
        while True:
            if await wait_within(self._due, self.period):
                await asyncio.sleep(TOGETHER_S)
            self._due.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Update all containers in the runtime that are not where they should be."""
        running = list(self.running())
        ids = {each.id for each in running}
        self._sent = {key: cpus for key, cpus in self._sent.items() if key in ids}
        self._logged &= ids
        for each in running:
            cpus = model.format_ids(self.cpus_of(each.uid, each.name))
            if cpus and self._sent.get(each.id) != cpus:
                await self._update_cpuset(each, cpus)

    async def _update_cpuset(self, container: RunningContainer, cpus: str) -> None:
        resources = cri.LinuxContainerResources(cpuset_cpus=cpus)
        try:
            await self.runtime.update_container_resources(container.id, resources)
        except NotFound:
            return  # it has ended meanwhile
        except CRIError as error:
            if container.id not in self._logged:
                self._logged.add(container.id)
                log.warning(
                    "a container could not be moved to its CPUs; trying again",
                    extra={
                        "pod": container.uid,
                        "container": container.name,
                        "cpus": cpus,
                        "error": str(error),
                    },
                )
            return
        self._logged.discard(container.id)
        self._sent[container.id] = cpus


NO_MEMORY_POLICY = "None"
_MEMORY_FORM = Form(
    "memory_manager_state",
    "memoryManagerPolicy",
    "blocks of memory",
    read_memory_state,
    write_memory_state,
    MemoryState(NO_MEMORY_POLICY),
    lambda metrics: metrics.memory_requests,
    lambda metrics: metrics.memory_errors,
)


class MemoryManager(StaticManager[MemoryState, StaticMemory]):
    """A provider of memory (``ResourceProvider`` and ``ContainerProvider``)."""

    name = model.MEMORY
    form = _MEMORY_FORM

    # -- ResourceProvider -----------------------------------------------------------------------

    async def settle(self, pod: Pod) -> None:
        """Write what was booked for a pod to the disk. Raises AllocationRefused."""
        names = self._unsettled.pop(pod.uid, [])
        source = self._source(pod)
        try:
            await self._file.write()
        except OSError as error:
            self._count_refusal(source)
            # blocks of init containers have shrunk for later ones: release the whole pod
            if self.policy is not None:
                others = {*self.state.entries, *self.state.pools} - {pod.uid}
                self.state = self.policy.without_all_but(self.state, others)
            self._file.write_soon()
            raise model.write_refusal(_MEMORY_FORM.name, error) from error
        for name in names:
            self._log_allocation(pod, name, source)

    def release(self, uids: Collection[str]) -> None:
        """Release the memory of all other pods."""
        policy = self.policy
        if policy and (left := self._keep(uids, policy.without_all_but(self.state, uids))):
            log.info("memory is free again", extra={"pods": left})

    # -- what containers get --------------------------------------------------------------------

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """The NUMA nodes that a container's memory comes from, for its config."""
        nodes = self.nodes_of(pod.uid, container["name"])
        if not nodes:
            return supplied
        return replace(
            supplied, placement=replace(supplied.placement, cpuset_mems=model.format_ids(nodes))
        )

    def nodes_of(self, uid: str, container: str) -> frozenset[int]:
        """The NUMA nodes of a container's memory; empty: any."""
        blocks = self.state.container_blocks(uid, container) or ()
        return frozenset(node for block in blocks for node in block.nodes or ())

    def owns(self, pod: Pod, container: str) -> bool:
        """Whether a container has memory that no other shares, not even in its pod."""
        held = bool(self.state.container_blocks(pod.uid, container))
        own = partial(model.requested_memory, pod, pod_level=True)
        return held and not model.shares_part(pod, container, own)

    def own_blocks(self, pod: Pod, container: str) -> Sequence[Block]:
        """The memory that is booked for a container alone."""
        if not self.owns(pod, container):
            return ()
        return self.state.container_blocks(pod.uid, container) or ()

    def pool_of(self, uid: str) -> Sequence[Block]:
        """The memory of a pod that is placed as one; empty: it is not."""
        return self.state.pools.get(uid, ())

    def allocatable(self) -> list[Block]:
        """The memory that can be, or is, booked: by node and type."""
        return [
            Block((node,), kind, table.allocatable)
            for node, memory in sorted(self.state.nodes.items())
            for kind, table in sorted(memory.tables.items())
            if table.allocatable
        ]

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """The memory that is booked for each container of a pod, or shared in it."""
        return [
            HeldResource(
                name,
                block.type,
                f"{spelled(block.size, binary=True)} "
                f"{'booked' if self.owns(pod, name) else 'shared in the pod'}",
                block.nodes or (),
            )
            for name in (container["name"] for container in model.containers_in_order(pod))
            for block in self.state.container_blocks(pod.uid, name) or ()
        ]

    # -- inside ---------------------------------------------------------------------------------

    def _log_allocation(self, pod: Pod, container: str, source: str) -> None:
        nodes = model.format_ids(self.nodes_of(pod.uid, container))
        log.info(
            "memory booked", extra={"pod": pod.key, "container": container, "numa_nodes": nodes}
        )
        self._count_allocation(pod, container, source)
