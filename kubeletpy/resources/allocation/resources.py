"""The resources allocated to a pod, and the rules of a resize: is it one, is it feasible? Pure.

Amounts are compared by value ("1" is "1000m"). Resources other than cpu and memory cannot be
resized and are passed through unchanged. No function changes an object in place. Source:
docs/reference/behaviour.md, c10; KEP-1287, KEP-5419 (pod level).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse, whole
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct, field
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.pods import resources as pods_resources
from kubeletpy.pods.pod import Pod, replaced_containers

KINDS = ("requests", "limits")

Requirements = api.ResourceRequirements


class PodResources(Struct, frozen=True):
    """The allocated resources of a pod's containers (init and regular), and at pod level.

    ``volumes``: the size limits of its volumes in memory; empty while these can't be resized.
    """

    containers: Mapping[str, Requirements] = field(default_factory=dict)
    pod: Requirements | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)


def requested_resources(pod: Pod, *, memory_volumes: bool = False) -> PodResources:
    """Return the resources in a pod's spec, with ``memory_volumes`` also those volumes' sizes."""
    return PodResources(
        {c["name"]: c.get("resources") or {} for c in (*pod.init_containers, *pod.containers)},
        pod.spec.get("resources"),
        pods_resources.size_limits(pod) if memory_volumes else {},
    )


def never_resized(found: PodResources) -> bool:
    """Whether a pod's spec has neither cpu nor memory anywhere, nor a volume of variable size.

    Such a pod is BestEffort; as a resize may not change the QoS class, it will never be resized.
    """
    return not found.volumes and not any(
        name in amounts(requirements, kind)
        for requirements in (*found.containers.values(), found.pod or Requirements())
        for kind in KINDS
        for name in pods_resources.COMPUTE
    )


def same(one: Requirements | None, other: Requirements | None) -> bool:
    """Whether two requirements contain the same amounts. None equals no amounts."""
    if one == other:
        return True
    first, second = one or Requirements(), other or Requirements()
    return all(_same_amounts(amounts(first, kind), amounts(second, kind)) for kind in KINDS)


def amounts(requirements: Requirements, kind: str) -> Mapping[str, str]:
    """Requests or limits; may be empty."""
    everything: Mapping[str, Any] = requirements
    return everything.get(kind) or {}


def _same_amounts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    if one.keys() != other.keys():
        return False
    try:
        return all(parse(one[name]) == parse(other[name]) for name in one)
    except ValueError:
        return False


def with_resources(pod: Pod, allocated: PodResources) -> Pod:
    """Return the pod with its allocation in place of its requests, or itself if they are equal.

    A container without a record keeps its requests.
    """
    changed = replaced_containers(
        pod, lambda container, init: _with(container, allocated.containers.get(container["name"]))
    )
    drop_pod_level = False
    if not same(pod.spec.get("resources"), allocated.pod):
        drop_pod_level = allocated.pod is None
        changed["resources"] = allocated.pod
    if (volumes := pods_resources.with_size_limits(pod, allocated.volumes)) is not None:
        changed["volumes"] = volumes
    if not changed:
        return pod
    spec: dict[str, Any] = {**pod.spec, **changed}
    if drop_pod_level:
        del spec["resources"]
    return Pod({**pod.object, "spec": spec})  # type: ignore[typeddict-item]


def _with(container: api.Container, allocated: Requirements | None) -> api.Container:
    if allocated is None or same(container.get("resources"), allocated):
        return container
    return {**container, "resources": allocated}


# The allocation as a pod's status in the API reports it.


def reported_resources(pod: Pod) -> PodResources:
    """Requests (as allocated) and limits (in force) as reported; for the rest, the spec's.

    It is for a running pod that is in no readable state file: the node ran an agent without one
    before, or the file is lost.

    Limits of containers with claims are the spec's: those in force contain what the claims add.
    """
    desired = requested_resources(pod)
    reported = {
        status.get("name") or "": status
        for key in ("containerStatuses", "initContainerStatuses")
        for status in _statuses(pod, key)
    }
    containers = {
        name: _reported(
            requirements, reported.get(name), limits=not pods_resources.raised_by_claims(pod, name)
        )
        for name, requirements in desired.containers.items()
    }
    pod_level = desired.pod
    if pod_level is not None and pod.status.get("resources"):
        pod_level = _overlaid(pod_level, pod.status["resources"], None)
    return PodResources(containers, pod_level)


def _statuses(pod: Pod, key: str) -> list[api.ContainerStatus]:
    return pod.status.get(key) or []  # type: ignore[return-value]


def _reported(
    desired: Requirements, status: api.ContainerStatus | None, *, limits: bool
) -> Requirements:
    reported = (status or {}).get("resources")
    if not reported:
        return desired
    if not limits:
        reported = {"requests": reported.get("requests") or {}}
    return _overlaid(desired, reported, (status or {}).get("allocatedResources"))


def _overlaid(
    desired: Requirements, reported: Requirements, allocated: dict[str, str] | None
) -> Requirements:
    """Return ``desired`` with the reported cpu and memory; no resource is added or dropped."""
    made: dict[str, Any] = {**desired}
    for kind, amounts in (
        ("requests", {**(reported.get("requests") or {}), **(allocated or {})}),
        ("limits", reported.get("limits") or {}),
    ):
        requested: dict[str, str] = desired.get(kind) or {}  # type: ignore[assignment]
        overlay = {
            name: amounts[name]
            for name in pods_resources.COMPUTE
            if name in amounts and name in requested
        }
        if overlay:
            made[kind] = {**requested, **overlay}
    return made  # type: ignore[return-value]


# The resources that an update of a pod resizes, for the metric and to recognize a resize.


class ResourceChange(Struct, frozen=True):
    """One amount in one container that an update changes.

    Source: docs/reference/metrics.csv: kubelet_container_requested_resizes_total.
    """

    resource: str
    """cpu or memory."""
    requirement: str
    """requests or limits."""
    operation: str
    """add, remove, increase or decrease."""


def resource_changes(old: Pod, new: Pod) -> Iterator[ResourceChange]:
    """Yield the changes in resources between two versions of a pod.

    Raises ValueError for an invalid quantity.
    """
    if old.spec is new.spec:
        return
    before, after = requested_resources(old).containers, requested_resources(new).containers
    for name, desired in after.items():
        had = before.get(name)
        if had is None:
            continue
        for resource in pods_resources.COMPUTE:
            for kind in KINDS:
                was = _amount(amounts(had, kind), resource)
                will = _amount(amounts(desired, kind), resource)
                if was != will:
                    yield ResourceChange(resource, kind, _operation(was, will))


def pod_level_changes(old: Pod, new: Pod) -> bool:
    """Whether the pod-level resources change."""
    return not same(old.spec.get("resources"), new.spec.get("resources"))


def volume_sizes_change(old: Pod, new: Pod) -> bool:
    """Whether the size of a volume in memory changes."""
    return old.spec is not new.spec and bool(
        pods_resources.changed_limits(
            pods_resources.size_limits(old), pods_resources.size_limits(new)
        )
    )


def _amount(named: Mapping[str, str], name: str) -> Decimal:
    return parse(named.get(name) or "0")


def _operation(was: Decimal, will: Decimal) -> str:
    if not will:
        return "remove"
    if not was:
        return "add"
    return "increase" if will > was else "decrease"


# Whether a resize is ever feasible on this node.

_STATIC_CPU_POLICY = "static"
_STATIC_MEMORY_POLICY = "Static"


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
            memory_volumes=gates.enabled(pods_resources.MEMORY_VOLUMES_GATE),
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
    """Return why ``desired`` can never follow ``allocated``, or None.

    Lack of free resources is not a reason, nor is anything with which the pod would be admitted
    without a resize.

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
    if pods_resources.qos_class(desired) is pods_resources.QoSClass.GUARANTEED:
        pinned = _pinned(desired, allocated, rules)
        if pinned is not None:
            return pinned
    return _exceeds_node(desired, rules.bound)


def _pinned(desired: Pod, allocated: Pod, rules: ResizeRules) -> Infeasible | None:
    """Why a Guaranteed pod can't be resized: a static policy has assigned its resources."""
    for name, title, policy, static in (
        ("cpu", "CPU", rules.cpu_manager_policy, _STATIC_CPU_POLICY),
        ("memory", "Memory", rules.memory_manager_policy, _STATIC_MEMORY_POLICY),
    ):
        if policy == static and any(
            _requested(new, name) != _requested(old, name)
            for new, old in _pairs(desired, allocated)
        ):
            manager = f'{title} Manager policy "{policy}"'
            message = f"Resize is infeasible for Guaranteed Pods alongside {manager}"
            return Infeasible(f"guaranteed_pod_{name}_manager_static_policy", message)
    return None


def _exceeds_node(desired: Pod, bound: Mapping[str, Decimal]) -> Infeasible | None:
    if not bound:
        return None
    requests = pods_resources.pod_requests(desired)
    for name in reversed(pods_resources.COMPUTE):
        requested, capacity = requests.get(name, Decimal(0)), bound[name]
        if requested > capacity:
            unit = 1000 if name == "cpu" else 1  # millicores or bytes
            numbers = f"requested: {whole(requested * unit)}, capacity: {whole(capacity * unit)}"
            message = f"Node didn't have enough capacity: {name}, {numbers}"
            return Infeasible("insufficient_node_allocatable", message)
    return None


def _resizes_swap(desired: Pod, allocated: Pod, rules: ResizeRules) -> bool:
    return any(
        _requested(new, "memory") != _requested(old, "memory")
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


def _requested(container: api.Container, name: str) -> Decimal:
    return _amount(amounts(container.get("resources") or {}, "requests"), name)


# The order in which waiting resizes are tried.


class WaitingResize(Struct, frozen=True):
    """A resize that is not allocated."""

    desired: Pod
    allocated: Pod
    since: str = ""
    """Since when it is pending, as an API timestamp; empty: it has not been tried yet."""


def order_resizes(waiting: Iterable[WaitingResize]) -> list[WaitingResize]:
    """Sort waiting resizes: those that don't request more first, since they free resources.

    Then they are ordered by priority, Guaranteed, and waiting time.

    Equals stay in order of arrival. Raises ValueError for an invalid quantity.
    """
    return sorted(waiting, key=_rank)


def requests_more(desired: Pod, allocated: Pod) -> bool:
    """Whether a resize takes more of the node's cpu or memory than the pod has.

    Raises ValueError for an invalid quantity.
    """
    new, old = pods_resources.pod_requests(desired), pods_resources.pod_requests(allocated)
    return any(new.get(name, 0) > old.get(name, 0) for name in pods_resources.COMPUTE)


def _rank(one: WaitingResize) -> tuple[bool, int, bool, bool, str]:
    pod = one.desired
    return (
        requests_more(pod, one.allocated),
        -pod.priority,
        pods_resources.qos_class(pod) is not pods_resources.QoSClass.GUARANTEED,
        not one.since,
        one.since,
    )
