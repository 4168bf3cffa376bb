"""Whether a resize is ever feasible on this node. Mere lack of room is not decided here.

Pure. Source: docs/reference/behaviour.md, c10. Must never refuse what would be admitted without a
resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse, whole
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, QoSClass, pod_requests, qos_class
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.resources.allocation.resize_changes import pod_level_changes, volume_sizes_change

STATIC = "static"
"""The cpuManagerPolicy that gives exclusive cpus to Guaranteed pods."""
STATIC_MEMORY = "Static"


class ResizeRules(Struct, frozen=True):
    """The node's settings that decide whether a resize is possible."""

    in_place: bool = True
    """InPlacePodVerticalScaling."""
    pod_level: bool = True
    """InPlacePodLevelResourcesVerticalScaling."""
    cpu_manager_policy: str = "none"
    memory_manager_policy: str = "None"
    memory_volumes: bool = False
    """InPlacePodVerticalScalingMemoryBackedVolumes."""
    cgroup_v2: bool = True
    may_swap: Callable[[Pod, api.Container], bool] = lambda pod, container: False
    """Whether a container of a pod has swap."""
    bound: Mapping[str, Decimal] = {}
    """The node's resources for all pods; only with a version in which the kubelet compares them."""

    @classmethod
    def from_settings(
        cls,
        settings: KubeletSettings,
        may_swap: Callable[[Pod, api.Container], bool],
        unreserved: Mapping[str, Decimal],
        *,
        cgroup_v2: bool,
    ) -> ResizeRules:
        """The rules that follow from the settings.

        ``unreserved``: the node's capacity without its reservations.
        """
        gates = settings.feature_gates
        return cls(
            in_place=gates.enabled("InPlacePodVerticalScaling"),
            pod_level=gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
            cpu_manager_policy=settings.cpu_manager_policy,
            memory_manager_policy=settings.memory_manager_policy,
            memory_volumes=gates.enabled(MEMORY_VOLUMES),
            cgroup_v2=cgroup_v2,
            may_swap=may_swap,
            bound=unreserved if version_facts(gates.version).resize_bounded_by_node else {},
        )


class Infeasible(Struct, frozen=True):
    """Why a resize is infeasible."""

    detail: str
    """``reason_detail`` of kubelet_pod_infeasible_resizes_total."""
    message: str


def infeasible(desired: Pod, allocated: Pod, rules: ResizeRules) -> Infeasible | None:
    """Why ``desired`` can never follow ``allocated``; None: it can, given enough room.

    Raises ValueError for an invalid quantity.
    """
    if not rules.in_place:
        return Infeasible("feature_gate_off", "InPlacePodVerticalScaling is disabled")
    if _resizes_swap(desired, allocated, rules):
        message = "In-place resize of containers with swap is not supported."
        return Infeasible("swap_limitation", message)
    if not rules.pod_level and pod_level_changes(allocated, desired):
        message = "InPlacePodLevelResourcesVerticalScaling is disabled"
        return Infeasible("plr_feature_gate_off", message)
    if rules.memory_volumes and not rules.cgroup_v2 and volume_sizes_change(allocated, desired):
        message = "Memory-backed emptyDir volume resize is not supported on cgroups v1"
        return Infeasible("cgroups_v1_unsupported", message)
    if qos_class(desired) is QoSClass.GUARANTEED:
        pinned = _pinned(desired, allocated, rules)
        if pinned is not None:
            return pinned
    return _beyond(desired, rules.bound)


def _pinned(desired: Pod, allocated: Pod, rules: ResizeRules) -> Infeasible | None:
    """Why a Guaranteed pod can't be resized: a static policy has assigned its resources."""
    for name, word, policy, static in (
        ("cpu", "CPU", rules.cpu_manager_policy, STATIC),
        ("memory", "Memory", rules.memory_manager_policy, STATIC_MEMORY),
    ):
        if policy == static and any(
            _request(new, name) != _request(old, name) for new, old in _pairs(desired, allocated)
        ):
            manager = f'{word} Manager policy "{policy}"'
            message = f"Resize is infeasible for Guaranteed Pods alongside {manager}"
            return Infeasible(f"guaranteed_pod_{name}_manager_static_policy", message)
    return None


def _beyond(desired: Pod, bound: Mapping[str, Decimal]) -> Infeasible | None:
    if not bound:
        return None
    requests = pod_requests(desired)
    for name in reversed(COMPUTE):
        requested, capacity = requests.get(name, Decimal(0)), bound[name]
        if requested > capacity:
            unit = 1000 if name == "cpu" else 1  # millicores or bytes
            numbers = f"requested: {whole(requested * unit)}, capacity: {whole(capacity * unit)}"
            message = f"Node didn't have enough capacity: {name}, {numbers}"
            return Infeasible("insufficient_node_allocatable", message)
    return None


def _resizes_swap(desired: Pod, allocated: Pod, rules: ResizeRules) -> bool:
    return any(
        _request(new, "memory") != _request(old, "memory")
        and not _restarts_for_memory(old)
        and (rules.may_swap(desired, new) or rules.may_swap(allocated, old))
        for new, old in _pairs(desired, allocated)
    )


def _restarts_for_memory(container: api.Container) -> bool:
    for policy in container.get("resizePolicy") or ():
        if policy.get("resourceName") == "memory":
            return policy.get("restartPolicy") == "RestartContainer"
    return False


def _pairs(desired: Pod, allocated: Pod) -> Iterator[tuple[api.Container, api.Container]]:
    """Each container as it is desired and as it is allocated."""
    before = {c["name"]: c for c in (*allocated.containers, *allocated.init_containers)}
    for container in (*desired.containers, *desired.init_containers):
        yield container, before.get(container["name"], container)


def _request(container: api.Container, name: str) -> object:
    text = ((container.get("resources") or {}).get("requests") or {}).get(name)
    return parse(text or "0")
