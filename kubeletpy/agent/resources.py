"""Builds the parts that give pods resources: cgroups, claims, devices, allocations, user ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.agent.context import BuildContext, Component, Task
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base import structs
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import ResourceStatus
from kubeletpy.base.clock import Clock
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.problems import ConfigError, Problem
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import capacity, unreserved
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.resources import ResizeRules
from kubeletpy.resources.cgroups.driver_check import DriverCheck
from kubeletpy.resources.cgroups.pod_cgroups import KernelPodLimits, PodCgroups
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.plugin import over_socket
from kubeletpy.resources.dra.claim_manager import ClaimManager, ClaimState
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.model import ClaimProblem, claim_uses, uses_claims
from kubeletpy.resources.dra.model import Claims as KnownClaims
from kubeletpy.resources.placement.state import StateError
from kubeletpy.runtime_manager.act.user_namespaces import (
    UnusableIds,
    UserNamespaceRanges,
    subordinate_ids,
)
from kubeletpy.runtime_manager.config.resources import has_swap
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.protocol import NoPodCgroupLimits, PodCgroupLimits

if TYPE_CHECKING:
    from kubeletpy.resources.dra.drivers import SliceCleaner
    from kubeletpy.resources.dra.health_state import HealthState


class Cgroups(structs.Struct, frozen=True):
    """The cgroup objects for the rest of the composition root.

    Attributes:
        tree: None: the machine's cgroups are not ours to use (a simulation, cgroupsPerQOS off).
        pods: creates and removes pod cgroups; None without a tree.
        parent: the cgroup in which a pod's sandbox is created.
        limits: sets what a pod may use.
        driver_check: sees whether the runtime has the agent's cgroup driver; None without a tree.
    """

    tree: CgroupTree | None
    pods: PodCgroups | None
    parent: Callable[[Pod], str]
    limits: PodCgroupLimits
    components: list[Component]
    driver_check: DriverCheck | None = None

    def problem(self) -> str:
        """Why limits of pods do not hold; empty: nothing is known to be wrong."""
        return self.driver_check.problem() if self.driver_check is not None else ""


def build_cgroups(
    context: BuildContext,
    state: PodState,
    *,
    has_no_quota: Callable[[Pod], bool],
    active_pods: Callable[[], Sequence[Pod]],
    has_volumes: Callable[[str], bool],
) -> Cgroups:
    """Build the cgroups of pods, or their absence.

    Args:
        has_no_quota: whether CPUs of its own leave a pod without a CFS quota.
        active_pods: with the resources allocated to them.
        has_volumes: whether volumes of a pod (uid) are still mounted.
    """
    outside, recorder = context.outside, context.recorder
    found = outside.machine.cgroups
    if found is None:
        return Cgroups(None, None, lambda pod: "", NoPodCgroupLimits(), [])
    if not isinstance(found, CgroupTree):
        return Cgroups(None, None, found.parent, found, [])
    tree = CgroupTree(found.files, found.options, has_no_quota)
    pods = PodCgroups(
        tree,
        recorder,
        outside.metrics.node,
        node_name=context.node_name,
        active_pods=active_pods,
        in_use=state.remains.may_run,
        has_volumes=has_volumes,
    )
    component = Component(
        pods, (Task("cgroups", pods.run),), keep=lambda found: pods.sweep_soon(), close=pods.close
    )

    def pod_name(uid: str) -> str:
        return next((pod.key for pod in active_pods() if pod.uid == uid), uid)

    check = DriverCheck(
        tree,
        recorder,
        node_name=context.node_name,
        runtime_name=outside.runtime_info.name,
        pod_name=pod_name,
        on_change=context.signals.node_changed,
    )
    components = [component, Component(check, (Task("cgroup-driver", check.run),))]
    return Cgroups(tree, pods, pods.parent, KernelPodLimits(tree, pods), components, check)


# Resource claims and DRA drivers.


class ClaimParts(structs.Struct, frozen=True):
    """The objects for resource claims; ``drivers`` handles DRA plugins."""

    components: list[Component]
    manager: ClaimManager
    drivers: DraDrivers
    device_health: Callable[[Pod], Mapping[str, list[api.ResourceStatus]]]
    """allocatedResourcesStatus of each container of a pod that has claims."""
    slices: SliceCleaner | None
    """None: there is no API, or no plugins."""


def build_claims(context: BuildContext) -> ClaimParts:
    """Raises ConfigError if the state in the root directory can't be used."""
    outside, signals, gates = context.outside, context.signals, context.gates
    root, kube_api, metrics = context.root, context.kube_api, outside.metrics.dra

    def show(claims: KnownClaims) -> None:
        drivers = (driver for claim in claims.values() for driver in claim.drivers)
        metrics.show(Counter(drivers), len(claims))

    try:
        state = ClaimState(root / "dra_manager_state", show)
    except StateError as error:
        raise ConfigError([Problem("dra_manager_state", "", str(error))]) from error

    health = _Health(root / "dra_health_state", outside.clock, state, signals.pod_changed, gates)
    heard = health.driver_reported if gates.enabled("ResourceHealthStatus") else None
    drivers = DraDrivers(metrics, outside.claim_drivers, heard)
    manager = ClaimManager(
        kube_api,
        drivers,
        state,
        metrics,
        may_skip=gates.enabled("DRAOptionalNodeOperations"),
        wake=signals.pod_changed,
    )
    components = [
        Component(state, close=state.close),
        Component(health, close=health.close),
        Component(drivers, close=drivers.close),
        Component(
            manager,
            (Task("resource-claims", manager.run),),
            keep=lambda found: manager.pods_known(found.existing),
        ),
    ]
    slices: SliceCleaner | None = None
    if kube_api is not None and outside.plugins is not None:
        from kubeletpy.resources.dra.drivers import SliceCleaner

        slices = SliceCleaner(kube_api, context.node_name, drivers)
        components.append(Component(slices, (Task("resource-slices", slices.run),)))
    return ClaimParts(components, manager, drivers, health.statuses, slices)


class _Health(structs.Component):
    """Device health; loaded when a driver reports it or a pod has claims."""

    path: Path
    clock: Clock
    claims: ClaimState
    pod_changed: Callable[[str], None]
    gates: FeatureGates

    def __post_init__(self) -> None:
        self._messages = self.gates.enabled("ResourceHealthStatusMessage")
        self._state: HealthState | None = None

    def driver_reported(self, driver: str, answer: Any) -> None:
        self._loaded().driver_reported(driver, answer)

    def statuses(self, pod: Pod) -> Mapping[str, list[api.ResourceStatus]]:
        if not self.claims.claims or not uses_claims(pod):
            return {}
        from kubeletpy.resources.dra.health import statuses

        try:
            used = claim_uses(pod)
        except ClaimProblem:
            return {}  # a claim does not exist yet: nothing is prepared
        known, now = self._loaded().reported, self.clock.now()
        return statuses(self.claims.claims, known, pod, used, now, messages=self._messages)

    async def close(self) -> None:
        if self._state is not None:
            await self._state.close()

    def _loaded(self) -> HealthState:
        if self._state is None:
            from kubeletpy.resources.dra.health_state import HealthState

            self._state = HealthState(self.path, self.clock, self._changed)
        return self._state

    def _changed(self, devices: set[tuple[str, tuple[str, str]]]) -> None:
        from kubeletpy.resources.dra.health import users

        for uid in users(self.claims.claims, devices):
            self.pod_changed(uid)


# Device plugins.


def build_devices(context: BuildContext, state: PodState) -> DeviceManager:
    """The manager of devices."""
    outside, signals = context.outside, context.signals
    topology = outside.machine.topology
    return DeviceManager(
        Path(context.flags.device_plugins_dir),
        outside.metrics.devices,
        nodes=tuple(topology.nodes) or (0,) if topology is not None else (0,),
        pod_runs=lambda uid: uid in state.cache.running(),
        is_active=state.uses_node,
        node_changed=signals.node_changed,
        pod_changed=signals.pod_changed,
        open_plugin=outside.device_plugins or over_socket,
        listen=outside.sockets,
    )


def device_health(
    gates: FeatureGates,
    devices: DeviceManager,
    of_claims: Callable[[Pod], Mapping[str, list[ResourceStatus]]],
) -> Callable[[Pod], dict[str, list[ResourceStatus]]]:
    """allocatedResourcesStatus of each container: plugin devices first, then those of claims."""

    def health(pod: Pod) -> dict[str, list[ResourceStatus]]:
        if not gates.enabled("ResourceHealthStatus"):
            return {}
        found = {name: list(each) for name, each in devices.resources_status(pod.uid).items()}
        for name, each in of_claims(pod).items():
            found.setdefault(name, []).extend(each)
        return found

    return health


# Records of resources allocated to pods.


class Allocations(structs.Struct, frozen=True):
    """The allocation objects. ``actuated``: the resources that containers were last given."""

    manager: AllocationManager
    actuated: ResourceState
    components: list[Component]


def build_allocations(
    context: BuildContext,
    state: PodState,
    rules: RuntimeSettings,
    fits: Callable[[Pod], Rejection | None],
) -> Allocations:
    """``rules`` are the settings of containers.

    ``fits`` states why a resized pod would not fit next to the others; None: it does.
    """
    volumes = context.gates.enabled(MEMORY_VOLUMES)
    allocated = ResourceState(context.root / "allocated_pods_state", memory_volumes=volumes)
    actuated = ResourceState(context.root / "actuated_pods_state", memory_volumes=volumes)
    manager = AllocationManager(
        allocated,
        context.recorder,
        context.outside.clock,
        rules=ResizeRules.from_settings(
            context.settings,
            lambda pod, c: has_swap(pod, c, rules),
            unreserved(capacity(context.outside.machine.facts, context.options), context.options),
            cgroup_v2=rules.cgroup_v2,
        ),
        metrics=context.outside.metrics.resizes,
        judge=fits,
        current=state.pods.get,
        sync=context.signals.pod_changed,
        sources_ready=state.sources.all,
        decided=state.decided,
    )
    components = [
        Component(
            actuated,
            keep=lambda found: actuated.forget_others(found.existing),
            close=actuated.close,
        ),
        Component(allocated, close=allocated.close),
        Component(
            manager, keep=lambda found: manager.forget_others(found.desired), close=manager.close
        ),
    ]
    return Allocations(manager, actuated, components)


# Ranges of user namespaces.


def build_user_namespaces(
    context: BuildContext, runtime_info: Callable[[], RuntimeInfo]
) -> UserNamespaceRanges:
    """``runtime_info``: what the runtime reports about itself now.

    Raises:
        ConfigError: the ids for pods can't be used.
    """
    settings = context.settings
    try:
        return UserNamespaceRanges(
            context.root / "pods",
            supporting=lambda: runtime_info().handlers_with("userNamespaces"),
            max_pods=settings.max_pods,
            ids_per_pod=settings.user_namespaces.ids_per_pod,
            owned=subordinate_ids(),
        )
    except UnusableIds as error:
        raise ConfigError([Problem(error.source, "", str(error))]) from error
