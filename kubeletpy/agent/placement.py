"""Builds the managers of positions on the machine: CPUs, memory, and their topology."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from math import ceil
from pathlib import Path

from kubeletpy.agent.context import BuildContext, Component, Task
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.api.quantity import milli_value, value
from kubeletpy.base.structs import Struct
from kubeletpy.config import ConfigError, KubeletSettings, Problem
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.metrics.resources import PlacementMetrics
from kubeletpy.node.facts import MachineFacts, hard_threshold
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.placement import options as placement_options
from kubeletpy.resources.placement.machine import MachineTopology
from kubeletpy.resources.placement.managers import (
    CpuManager,
    CpuReconciler,
    MemoryManager,
    RunningContainer,
)
from kubeletpy.resources.placement.model import (
    HUGE,
    MEMORY,
    AllocationRefused,
    NumaNode,
    PodLevelPlacement,
    Policy,
    ResourceProvider,
)
from kubeletpy.resources.placement.options import TOPOLOGY_OPTIONS, CpuOptions, OptionError
from kubeletpy.resources.placement.static_cpus import STATIC_CPU_POLICY, StaticCpus
from kubeletpy.resources.placement.static_memory import STATIC_MEMORY_POLICY, StaticMemory
from kubeletpy.resources.placement.topology_manager import TopologyManager
from kubeletpy.runtime_manager.protocol import ContainerProvider
from kubeletpy.syncloop.admission_gate import Place, Settle


class Placed(Struct, frozen=True):
    """The placement objects for the rest of the composition root.

    Attributes:
        providers: contribute to container configs.
        place: assigns a pod its place.
        release: takes back what is held by pods that no longer use the node.
        preview: where a pod would go; books nothing, raises AllocationRefused.
    """

    components: list[Component]
    cpus: CpuManager
    memory: MemoryManager
    providers: Sequence[ContainerProvider]
    place: Place
    release: Callable[[], None]
    preview: Callable[[Pod], Sequence[Decision]]


def build_placement(
    context: BuildContext, state: PodState, before: Sequence[ResourceProvider]
) -> Placed:
    """``before``: other providers of resources that have a position on the machine.

    Raises:
        ConfigError: the settings can't work on this machine.
    """
    settings, outside = context.settings, context.outside
    managers = placement_managers(
        settings,
        outside.machine.topology,
        outside.machine.facts,
        context.root,
        metrics=outside.metrics.placement,
        before=before,
        users=state.users,
        decided=state.decided,
    )
    cpus, memory, manager = managers.cpus, managers.memory, managers.topology
    reconciler = CpuReconciler(
        outside.runtime,
        lambda: _running(state.cache),
        cpus.cpus_of,
        settings.cpu_manager_reconcile_period,
    )
    tasks: tuple[Task, ...] = ()
    if managers.exclusive_cpus:
        tasks = (Task("cpu-reconcile", reconciler.run),)
        cpus.subscribe(reconciler.reconcile_soon)
        state.cache.subscribe(reconciler.reconcile_soon)
    return Placed(
        [
            Component(cpus, tasks, start=cpus.start, close=cpus.close),
            Component(memory, start=memory.start, close=memory.close),
            Component(manager, keep=lambda found: manager.release()),
        ],
        cpus,
        memory,
        (cpus, memory),
        managers.place,
        manager.release,
        manager.preview,
    )


def has_placement(settings: KubeletSettings) -> bool:
    """Whether any resource is assigned by its position on the machine."""
    policies = (
        settings.cpu_manager_policy,
        settings.memory_manager_policy.lower(),
        settings.topology_manager_policy,
    )
    return any(policy != "none" for policy in policies)


class PlacementManagers(Struct, frozen=True):
    """The managers that book positions on the machine for pods.

    Attributes:
        exclusive_cpus: whether containers may have CPUs of their own.
    """

    cpus: CpuManager
    memory: MemoryManager
    topology: TopologyManager
    exclusive_cpus: bool

    def place(self, pod: Pod) -> Rejection | Settle | None:
        """Assign a pod its position; what it has already stays."""
        try:
            settle = self.topology.admit(pod)
        except AllocationRefused as refused:
            return Rejection(refused.reason, str(refused), refused.cause)
        return None if settle is None else partial(_settled, settle)


def placement_managers(
    settings: KubeletSettings,
    machine: MachineTopology | None,
    facts: MachineFacts,
    root: Path,
    *,
    metrics: PlacementMetrics,
    before: Sequence[ResourceProvider] = (),
    users: Callable[[], Collection[str] | None],
    decided: Callable[[str, Sequence[Decision]], None],
) -> PlacementManagers:
    """The managers that the settings request; their state files are in ``root``.

    Raises:
        ConfigError: the settings can't work on this machine.
    """
    policy = Policy(settings.topology_manager_policy)
    pod_level = PodLevelPlacement.of_settings(
        settings.feature_gates.enabled("PodLevelResourceManagers"),
        policy,
        settings.topology_manager_scope,
    )
    try:
        topology = placement_options.read_topology_options(settings.topology_manager_policy_options)
        static = _static_cpus(settings, machine, policy, pod_level)
        nodes = _nodes(machine, topology.max_nodes) if policy is not Policy.NONE else ()
        booked = _static_memory(settings, machine, facts, pod_level)
    except OptionError as error:
        raise ConfigError([Problem(error.field, "", str(error))]) from error
    cpus = CpuManager(
        static,
        root,
        metrics,
        quota_off=settings.feature_gates.enabled("DisableCPUQuotaWithExclusiveCPUs"),
    )
    memory = MemoryManager(booked, root, metrics)
    manager = TopologyManager(
        (*before, cpus, memory),
        nodes,
        policy,
        metrics,
        scope=settings.topology_manager_scope,
        pod_level=pod_level,
        closest=machine.distances if machine is not None and topology.closest else None,
        users=users,
        decided=decided,
    )
    return PlacementManagers(cpus, memory, manager, exclusive_cpus=static is not None)


async def _settled(settle: Callable[[], Awaitable[None]]) -> Rejection | None:
    try:
        await settle()
    except AllocationRefused as refused:
        return Rejection(refused.reason, str(refused), refused.cause)
    return None


def _static_cpus(
    settings: KubeletSettings,
    machine: MachineTopology | None,
    policy: Policy,
    pod_level: PodLevelPlacement,
) -> StaticCpus | None:
    """Raises OptionError."""
    supplied = settings.cpu_manager_policy_options
    if settings.cpu_manager_policy != STATIC_CPU_POLICY:
        if supplied:
            raise OptionError("cpuManagerPolicyOptions", "only for cpuManagerPolicy static")
        return None
    if machine is None:
        raise OptionError("cpuManagerPolicy", "static needs the machine's topology")
    options: CpuOptions = placement_options.read_cpu_options(
        supplied, settings.feature_gates.enabled
    )
    placement_options.check_sockets(
        options, machine.cpus, single_node=policy is Policy.SINGLE_NUMA_NODE
    )
    listed = parse_cpuset(settings.reserved_system_cpus) or frozenset()
    reserved = (settings.kube_reserved, settings.system_reserved)
    milli = sum(milli_value(each.get("cpu", "0")) for each in reserved)
    count = len(listed) or ceil(milli / 1000)
    kept = placement_options.reserve_cpus(machine.cpus, listed, count, options)
    return StaticCpus(machine.cpus, kept, options, pod_level)


def _static_memory(
    settings: KubeletSettings,
    machine: MachineTopology | None,
    facts: MachineFacts,
    pod_level: PodLevelPlacement,
) -> StaticMemory | None:
    """Raises OptionError."""
    if settings.memory_manager_policy != STATIC_MEMORY_POLICY:
        return None
    if machine is None:
        raise OptionError("memoryManagerPolicy", "Static needs the machine's topology")
    total: dict[str, int] = {}
    for reserved in (settings.kube_reserved, settings.system_reserved):
        for name, text in reserved.items():
            if name == MEMORY or name.startswith(HUGE):
                total[name] = total.get(name, 0) + value(text)
    kept = hard_threshold(settings.eviction_hard, "memory.available", facts.memory_bytes)
    total[MEMORY] = total.get(MEMORY, 0) + kept
    nodes = machine.nodes or {0: NumaNode(facts.memory_bytes, facts.huge_pages)}
    return StaticMemory(
        placement_options.empty_nodes(nodes, settings.reserved_memory, total), pod_level
    )


def _nodes(machine: MachineTopology | None, at_most: int) -> tuple[int, ...]:
    """The machine's NUMA nodes. Raises OptionError."""
    if machine is None:
        raise OptionError("topologyManagerPolicy", "it needs the machine's topology")
    found = tuple(machine.nodes) or (0,)
    if len(found) > at_most:
        raise OptionError(
            TOPOLOGY_OPTIONS,
            f"this machine has {len(found)} NUMA nodes; a topologyManagerPolicy other than none "
            "needs max-allowable-numa-nodes to be no fewer",
        )
    return found


def _running(cache: PodStatusCache) -> Iterator[RunningContainer]:
    for uid in sorted(cache.running()):
        status = cache.status(uid)
        for container in status.containers if status is not None else ():
            if container.running:
                yield RunningContainer(container.id, container.name, uid)
