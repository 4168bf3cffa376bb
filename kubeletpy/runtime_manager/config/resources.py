"""Linux resource limits in CRI terms, from requests and limits.

Source: docs/reference/behaviour.md, k2; docs/reference/constants.csv: resources.
"""

from __future__ import annotations

from decimal import Decimal

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import whole
from kubeletpy.pods import resources as pods_resources
from kubeletpy.pods.pod import ContainerKind, Placement, Pod, is_sidecar
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, Amounts, QoSClass
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.settings import RuntimeSettings

GUARANTEED_OOM_SCORE = -997
BEST_EFFORT_OOM_SCORE = 1000
NO_QUOTA = -1
_ZERO = Decimal(0)


def linux_resources(
    settings: RuntimeSettings,
    cpu_request: Decimal | None,
    cpu_limit: Decimal | None,
    memory_limit: Decimal | None,
) -> cri.LinuxContainerResources:
    """cpu and memory of a container or a sandbox; cores and bytes. No request: the limit counts."""
    resources = cri.LinuxContainerResources()
    share = cpu_request if cpu_request is not None else cpu_limit
    resources.cpu_shares = pods_resources.cpu_shares(whole((share or _ZERO) * 1000))
    if memory_limit:
        resources.memory_limit_in_bytes = whole(memory_limit)
    if settings.cpu_cfs_quota:
        period = settings.cpu_cfs_period_us
        resources.cpu_period = period
        resources.cpu_quota = pods_resources.cpu_quota(whole((cpu_limit or _ZERO) * 1000), period)
    if settings.cgroup_v2 and not settings.single_process_oom_kill:
        resources.unified["memory.oom.group"] = "1"
    return resources


def overhead_resources(pod: Pod, settings: RuntimeSettings) -> cri.LinuxContainerResources:
    """``spec.overhead``; empty without one. Raises ValueError."""
    extra = pods_resources.amounts(pod.spec.get("overhead"))
    if not extra:
        return cri.LinuxContainerResources()
    return linux_resources(settings, extra.get("cpu"), extra.get("cpu"), extra.get("memory"))


def container_resources(
    pod: Pod, container: api.Container, kind: ContainerKind, settings: RuntimeSettings
) -> cri.LinuxContainerResources:
    """All resource limits of one container. Raises ValueError for what is not a quantity."""
    requests = pods_resources.container_amounts(container, "requests")
    limits = pods_resources.container_amounts(container, "limits")
    of_pod = pods_resources.amounts((pod.spec.get("resources") or {}).get("limits"))
    raised = (
        _raised_by_claims(pod, container, limits, of_pod) if pods_resources.claims(pod) else limits
    )
    resources = linux_resources(
        settings,
        pods_resources.cpu_request(pod, container),
        raised.get("cpu") or of_pod.get("cpu"),
        raised.get("memory") or of_pod.get("memory"),
    )
    resources.oom_score_adj = oom_score_adj(pod, container, kind, settings.memory_capacity)
    page_limits = {
        **pods_resources.hugepage_limits(of_pod),
        **pods_resources.hugepage_limits(raised),
    }
    resources.hugepage_limits.extend(
        cri.HugepageLimit(page_size=size, limit=page_limits.get(size, 0))
        for size in settings.hugepage_sizes
    )
    _limit_swap(resources, pod, container, settings)
    request, limit = (whole(each.get("memory", _ZERO)) for each in (requests, limits))
    if limit != request:
        limit = whole(raised.get("memory", _ZERO))
    if settings.cgroup_v2:
        files = pods_resources.container_files(
            settings.memory_qos,
            pods_resources.qos_class(pod),
            request,
            limit,
            pod_limit=whole(of_pod.get("memory", _ZERO)),
        )
        for name, text in files.items():
            resources.unified[name] = text
    return resources


def _raised_by_claims(
    pod: Pod, container: api.Container, limits: Amounts, of_pod: Amounts
) -> Amounts:
    """A container's limits with what its claims add.

    Without a limit of its own in the spec a container has none, or the pod's: nothing is added.
    Exception: huge pages, of which it could use none without a limit of its own or of the pod.
    During a resize ``limits`` may contain those of the pod, so the spec decides.
    """
    found = pod.find_container(container["name"])
    own = pods_resources.container_amounts(found[1], "limits") if found is not None else limits
    raised = dict(limits)
    for name, more in pods_resources.added_to_container(pod, container["name"]).items():
        if name.startswith(HUGEPAGES_PREFIX):
            if name in limits or name not in of_pod:
                raised[name] = limits.get(name, _ZERO) + more
        elif own.get(name) and limits.get(name):
            raised[name] = limits[name] + more
    return raised


def placed(
    resources: cri.LinuxContainerResources, placement: Placement
) -> cri.LinuxContainerResources:
    """The same limits, restricted to the container's own CPUs and memory."""
    resources.cpuset_cpus = placement.cpuset_cpus
    resources.cpuset_mems = placement.cpuset_mems
    if placement.no_cfs_quota and resources.cpu_period:
        resources.cpu_quota = NO_QUOTA
    return resources


def oom_score_adj(
    pod: Pod, container: api.Container, kind: ContainerKind, memory_capacity: int
) -> int:
    """The OOM score adjustment: the higher it is, the sooner the kernel kills the container.

    ``memory_capacity`` is the node's, in bytes. A Burstable container lies between the other
    classes, lower the more memory it requests; a sidecar is no higher than the regular container
    that requests least. Raises ValueError.
    """
    if pods_resources.is_node_critical(pod):
        return GUARANTEED_OOM_SCORE
    quality = pods_resources.qos_class(pod)
    if quality is QoSClass.GUARANTEED:
        return GUARANTEED_OOM_SCORE
    if quality is QoSClass.BEST_EFFORT:
        return BEST_EFFORT_OOM_SCORE
    if memory_capacity <= 0:
        return BEST_EFFORT_OOM_SCORE - 1
    spread = _unassigned_memory_share(pod)

    def score(request: int) -> int:
        return 1000 - 1000 * (request + spread) // memory_capacity

    adjust = score(_memory_request(pod, container))
    if kind is ContainerKind.INIT and is_sidecar(container):
        adjust = min(adjust, score(min(_memory_request(pod, c) for c in pod.containers)))
    return max(1000 + GUARANTEED_OOM_SCORE, min(BEST_EFFORT_OOM_SCORE - 1, adjust))


def _memory_request(pod: Pod, container: api.Container) -> int:
    own = whole(pods_resources.container_amounts(container, "requests").get("memory", _ZERO))
    return own + pods_resources.memory_share(pod, container["name"])


def _unassigned_memory_share(pod: Pod) -> int:
    """Each container's part of a pod-level memory request that no container or claim requests."""
    if not pods_resources.pod_level_requests_set(pod):
        return 0
    requested = pods_resources.amounts(pod.spec["resources"].get("requests")).get("memory", _ZERO)
    assigned = pods_resources.requested_below_pod(pod).get("memory", _ZERO)
    count = len(pod.containers) + len(pod.init_containers)
    return max(0, whole(requested) - whole(assigned)) // count


def has_swap(pod: Pod, container: api.Container, settings: RuntimeSettings) -> bool:
    """Whether a container may use swap: only in Burstable pods that are not critical, and only if
    its memory request is not its limit. Raises ValueError for what is not a quantity.
    """
    if not (settings.swap_controller and settings.cgroup_v2 and settings.limited_swap):
        return False
    if pods_resources.is_critical(pod) or pods_resources.qos_class(pod) is not QoSClass.BURSTABLE:
        return False
    request = pods_resources.container_amounts(container, "requests").get("memory", _ZERO)
    return request != pods_resources.container_amounts(container, "limits").get("memory", _ZERO)


def _limit_swap(
    resources: cri.LinuxContainerResources,
    pod: Pod,
    container: api.Container,
    settings: RuntimeSettings,
) -> None:
    """No swap, or with LimitedSwap the share of swap that the memory request is of all memory."""
    if not settings.swap_controller:
        return
    if not settings.cgroup_v2:
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes
        return
    swap = 0
    request = pods_resources.container_amounts(container, "requests").get("memory", _ZERO)
    if 0 < request <= settings.memory_capacity and has_swap(pod, container, settings):
        swap = int(request / settings.memory_capacity * settings.swap_capacity)
    resources.unified["memory.swap.max"] = str(swap)
