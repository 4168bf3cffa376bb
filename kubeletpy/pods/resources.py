"""The resources of a pod: its totals, QoS class, and requests and limits in cgroup units. Pure.

Amounts are Decimals in the resource's own unit (cores, bytes, pieces). No object is changed in
place. Source: docs/reference/behaviour.md, k3; KEP-753 (sidecars), KEP-2837 (pod-level resources),
KEP-688 (overhead).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeVar, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, parse, whole
from kubeletpy.base.api.quantity import parse_quantity as read_quantity
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod, is_sidecar, replaced_containers

# -- what resource claims add (docs/reference/behaviour.md, k5; KEP-5517) --------------------
#
# The scheduler records cpu, memory and huge pages in a field of the status. Each claim has its
# ``mapping`` (the claim's devices), ``overhead`` per pod and per container, and the containers
# that refer to it. They do not count for the QoS class.

NODE_ALLOCATABLE_GATE = "DRANodeAllocatableResources"
"""Feature gate; while it is off, :func:`without_claims` removes the field from pods that arrive."""
FIELD = "nodeAllocatableResourceClaimStatuses"
_N = TypeVar("_N", Decimal, Quantity)
_Claim = Mapping[str, Any]
_NO_CLAIMS: tuple[_Claim, ...] = ()


def without_claims(obj: api.Pod) -> api.Pod:
    """The object without what claims add; itself if it has none. It need not be a valid pod."""
    status = obj.get("status") if isinstance(obj, Mapping) else None
    if not isinstance(status, Mapping) or FIELD not in status:
        return obj
    rest = {name: value for name, value in status.items() if name != FIELD}
    return cast("api.Pod", {**obj, "status": rest})


def claims(pod: Pod) -> tuple[_Claim, ...] | list[_Claim]:
    """The entries of the status, one for each claim that adds something."""
    found: Any = pod.status.get(FIELD)
    return found or _NO_CLAIMS


def raised_by_claims(pod: Pod, name: str) -> bool:
    """Whether a container refers to a claim that adds something."""
    return any(name in (claim.get("containers") or ()) for claim in claims(pod))


def added_to_pod(pod: Pod, read: Callable[[str], _N]) -> dict[str, _N]:
    """Sums what all claims add to the pod: mappings, overhead per pod and per container.

    Raises ValueError for what is not a quantity.
    """
    total: dict[str, _N] = {}
    for claim in claims(pod):
        for name, text in _once(claim):
            _add(total, {name: read(text)})
        for name, text in _each(claim):
            for _ in claim.get("containers") or ():
                _add(total, {name: read(text)})
    return total


def added_to_container(pod: Pod, name: str) -> dict[str, Decimal]:
    """Sums what a container's claims add to its limits. Raises ValueError.

    The mapping and the overhead per pod count in full for each of the containers that share the
    claim; the limit of the pod holds them together.
    """
    total: dict[str, Decimal] = {}
    for claim in claims(pod):
        if name in (claim.get("containers") or ()):
            for resource, text in (*_once(claim), *_each(claim)):
                _add(total, {resource: parse(text)})
    return total


def memory_share(pod: Pod, name: str) -> int:
    """Bytes that count as requested by a container for its OOM score. Raises ValueError.

    The containers of a claim share its mapping and its overhead per pod equally.
    """
    total = 0
    for claim in claims(pod):
        containers = claim.get("containers") or ()
        if name in containers:
            shared = [whole(parse(text)) for each, text in _once(claim) if each == "memory"]
            own = [whole(parse(text)) for each, text in _each(claim) if each == "memory"]
            total += sum(amount // len(containers) for amount in shared) + sum(own)
    return total


def _once(claim: _Claim) -> Iterator[tuple[str, str]]:
    """(resource, quantity) of what a claim adds once."""
    for entry in claim.get("mapping") or ():
        if (quantity := entry.get("quantity")) is not None:
            yield entry["name"], quantity
    for entry in claim.get("overhead") or ():
        if (quantity := entry.get("perPod")) is not None:
            yield entry["name"], quantity


def _each(claim: _Claim) -> Iterator[tuple[str, str]]:
    """(resource, quantity) of what a claim adds for each of its containers."""
    for entry in claim.get("overhead") or ():
        if (quantity := entry.get("perContainer")) is not None:
            yield entry["name"], quantity


# -- totals ----------------------------------------------------------------------------------

Amounts = dict[str, Decimal]
Kind = Literal["requests", "limits"]
HUGEPAGES_PREFIX = "hugepages-"
COMPUTE = ("cpu", "memory")
"""The resources that decide the QoS class and that can be resized in place."""


def amounts(quantities: Mapping[str, str] | None) -> Amounts:
    """Read a list of quantities. Raises ValueError."""
    return {name: parse(text) for name, text in (quantities or {}).items()}


def container_amounts(container: api.Container, which: Kind) -> Amounts:
    """One container's requests or limits. Raises ValueError."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    return amounts(resources.get(which))


def cpu_request(pod: Pod, container: api.Container) -> Decimal | None:
    """The cores by which a container shares the CPUs: its request, else its or its pod's limit.

    None: it has neither. Raises ValueError.
    """
    limit = container_amounts(container, "limits").get("cpu")
    of_pod = amounts((pod.spec.get("resources") or {}).get("limits"))
    return container_amounts(container, "requests").get("cpu", limit or of_pod.get("cpu"))


def pod_requests(pod: Pod, *, overhead: bool = True, with_claims: bool = False) -> Amounts:
    """The pod's requests as counted by the scheduler and the pod cgroup.

    The largest of these sums: the regular containers with all sidecars, and each init container
    with the sidecars before it. Pod-level values replace the sums. Raises ValueError.

    Args:
        overhead: whether ``spec.overhead`` counts.
        with_claims: whether what the pod's claims add to its containers counts.
    """
    return _pod_total(pod, "requests", parse, overhead=overhead, with_claims=with_claims)


def pod_limits(pod: Pod, *, overhead: bool = True, with_claims: bool = False) -> Amounts:
    """Like :func:`pod_requests`, for limits; overhead and claims raise only limits that are set.

    Exception: huge pages of claims, as a pod without a limit may not use any.
    """
    return _pod_total(pod, "limits", parse, overhead=overhead, with_claims=with_claims)


def pod_quantities(pod: Pod, which: Kind, *, with_claims: bool = False) -> dict[str, Quantity]:
    """A pod's total requests or limits, in the formats of the spec. Raises ValueError."""
    return _pod_total(pod, which, read_quantity, overhead=True, with_claims=with_claims)


def _pod_total(
    pod: Pod, which: Kind, read: Callable[[str], _N], *, overhead: bool, with_claims: bool
) -> dict[str, _N]:
    total = _container_sum(pod, which, read)
    if with_claims and claims(pod):
        _add(
            total,
            {
                name: amount
                for name, amount in added_to_pod(pod, read).items()
                if which == "requests" or name in total or name.startswith(HUGEPAGES_PREFIX)
            },
        )
    pod_level = _pod_level_quantities(pod, which)
    total.update({n: read(text) for n, text in pod_level.items() if _pod_level_supports(n)})
    if overhead:
        _add(
            total,
            {
                name: read(text)
                for name, text in (pod.spec.get("overhead") or {}).items()
                if which == "requests" or total.get(name)
            },
        )
    return total


def pod_level_limit(pod: Pod, name: str) -> str | None:
    """A pod-level limit, if the spec sets one."""
    return _pod_level_quantities(pod, "limits").get(name)


def limited(pod: Pod, name: str) -> bool:
    """Whether a pod has a limit for a resource: pod-level, or on each of its containers.

    Raises ValueError.
    """
    if pod_level_limit(pod, name) is not None:
        return True
    containers = (*pod.containers, *pod.init_containers)
    return all(container_amounts(c, "limits").get(name) for c in containers)


def pod_level_requests_set(pod: Pod) -> bool:
    """Whether the spec has pod-level requests."""
    return any(_pod_level_supports(name) for name in _pod_level_quantities(pod, "requests"))


def pod_level_set(pod: Pod) -> bool:
    """Whether the spec has pod-level requests or limits."""
    return pod_level_requests_set(pod) or any(
        _pod_level_supports(name) for name in _pod_level_quantities(pod, "limits")
    )


def resource_levels(pod: Pod) -> str:
    """Where a pod states requests or limits, as kubelet_pod_level_resources_admission_total does.

    ``pod_and_container_level``, ``pod_level``, ``container_level``, or empty for nowhere.
    Source: docs/reference/metrics.csv: kubelet_pod_level_resources_admission_total.
    """
    on_pod = pod_level_set(pod)
    on_containers = any(
        resources.get("requests") or resources.get("limits")
        for container in (*pod.containers, *pod.init_containers)
        if (resources := container.get("resources"))
    )
    if on_pod:
        return "pod_and_container_level" if on_containers else "pod_level"
    return "container_level" if on_containers else ""


def requested_below_pod(pod: Pod) -> Amounts:
    """Requests of containers at the pod's peak, with those of claims. Raises ValueError."""
    total = _container_sum(pod, "requests", parse)
    _add(total, added_to_pod(pod, parse))
    return total


def _container_sum(pod: Pod, which: Kind, read: Callable[[str], _N]) -> dict[str, _N]:
    def own(container: api.Container) -> dict[str, _N]:
        resources: Mapping[str, Any] = container.get("resources") or {}
        return {name: read(text) for name, text in (resources.get(which) or {}).items()}

    total: dict[str, _N] = {}
    for container in pod.containers:
        _add(total, own(container))
    sidecars: dict[str, _N] = {}
    peak: dict[str, _N] = {}
    for container in pod.init_containers:
        amount = own(container)
        if is_sidecar(container):
            _add(total, amount)
            _add(sidecars, amount)
            _raise(peak, sidecars)
        else:
            _add(amount, sidecars)
            _raise(peak, amount)
    _raise(total, peak)
    return total


def _pod_level_quantities(pod: Pod, which: Kind) -> Mapping[str, str]:
    resources: Mapping[str, Any] = pod.spec.get("resources") or {}
    return resources.get(which) or {}


def _pod_level_supports(name: str) -> bool:
    return name in COMPUTE or name.startswith(HUGEPAGES_PREFIX)


def _add(total: dict[str, _N], more: Mapping[str, _N]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, _N], other: Mapping[str, _N]) -> None:
    for name, amount in other.items():
        if name not in total or total[name] < amount:
            total[name] = amount


# -- QoS class (docs/reference/behaviour.md, k1; KEP-2837 for pod-level resources) -----------

NODE_CRITICAL_CLASS = "system-node-critical"
CRITICAL_PRIORITY = 2_000_000_000


class QoSClass(StrEnum):
    """The API's values of status.qosClass; it decides the cgroup and the order of OOM kills."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES = {member.value: member for member in QoSClass}


def qos_class(pod: Pod) -> QoSClass:
    """The class that the API server has set, else the one the spec implies. Raises ValueError."""
    settled = _CLASSES.get(pod.status.get("qosClass") or "")
    return settled if settled is not None else compute_qos_class(pod)


def compute_qos_class(pod: Pod) -> QoSClass:
    """The class from the spec alone: regular and init containers, or pod-level resources if set.

    Raises:
        ValueError: a request or limit is not a quantity.
    """
    pod_level = pod.spec.get("resources")
    holders: list[Mapping[str, Any]]
    if pod_level is not None and pod_level_set(pod):
        holders = [pod_level]
    else:
        holders = [c.get("resources") or {} for c in (*pod.containers, *pod.init_containers)]
    requests: defaultdict[str, Decimal] = defaultdict(Decimal)
    limits: defaultdict[str, Decimal] = defaultdict(Decimal)
    all_limited = True
    for holder in holders:
        _add_positive(requests, holder.get("requests"))
        limited = _add_positive(limits, holder.get("limits"))
        all_limited = all_limited and limited == len(COMPUTE)
    if not requests and not limits:
        return QoSClass.BEST_EFFORT
    if all_limited and requests == limits:
        return QoSClass.GUARANTEED
    return QoSClass.BURSTABLE


def is_critical(pod: Pod) -> bool:
    """Whether the pod is never evicted: static, mirror, or of system-critical priority."""
    return pod.is_static or pod.is_mirror or pod.priority >= CRITICAL_PRIORITY


def is_node_critical(pod: Pod) -> bool:
    """Whether the node itself depends on the pod: it is the last to be OOM-killed."""
    return is_critical(pod) and pod.spec.get("priorityClassName") == NODE_CRITICAL_CLASS


def _add_positive(total: defaultdict[str, Decimal], amounts: Mapping[str, str] | None) -> int:
    """Add positive cpu and memory amounts to ``total``; returns how many there were."""
    found = 0
    for name in COMPUTE:
        text = (amounts or {}).get(name)
        if text is None:
            continue
        amount = parse(text)
        if amount > 0:
            total[name] += amount
            found += 1
    return found


# -- requests in force during a resize (docs/reference/behaviour.md, c10, l; KEP-1287) -------

_Quantities = Mapping[str, str]


def requests_in_force(pod: Pod) -> Amounts:
    """The pod's requests, of cpu and memory the maximum of those of its spec and of its status.

    During a resize a container has its old resources and will get those allocated to it; until the
    node reports it done, both count.

    The sums of all containers are compared, so that what moves from one container to another counts
    once. The requests of an infeasible resize do not count. Raises ValueError for a malformed
    quantity.
    """
    total = pod_requests(pod, with_claims=True)
    allocated = _with_requests(pod, actual=False)
    actual = _with_requests(pod, actual=True)
    if allocated is pod and actual is pod:
        return total
    sums = [pod_requests(each, with_claims=True) for each in (allocated, actual)]
    if not _resize_is_infeasible(pod):
        sums.append(total)
    for name in COMPUTE:
        if found := [each[name] for each in sums if name in each]:
            total = {**total, name: max(found)}
        else:
            total = {key: amount for key, amount in total.items() if key != name}
    return total


def _resize_is_infeasible(pod: Pod) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in pod.status.get("conditions") or ()
    )


def _with_requests(pod: Pod, *, actual: bool) -> Pod:
    """The pod with the requests that its status shows as allocated, or as in effect.

    The pod itself when its status shows nothing else than the spec.
    """
    statuses = {
        init: {status.get("name"): status for status in listed or ()}
        for init, listed in (
            (False, pod.status.get("containerStatuses")),
            (True, pod.status.get("initContainerStatuses")),
        )
    }

    def replaced(container: api.Container, init: bool) -> api.Container:
        status: Mapping[str, Any] = statuses[init].get(container["name"]) or {}
        resources: Any = container.get("resources") or {}
        found: Any = _overlaid(resources, status, actual=actual)
        return container if found is resources else {**container, "resources": found}

    changed = replaced_containers(pod, replaced)
    pod_level: Any = pod.spec.get("resources") or {}
    if pod_level.get("requests") and pod.status.get("resources"):
        names = pod_level["requests"].keys()
        found = _overlaid(pod_level, pod.status, actual=actual, names=names)
        if found is not pod_level:
            changed["resources"] = found
    if not changed:
        return pod
    return Pod({**pod.object, "spec": {**pod.spec, **changed}})  # type: ignore[typeddict-item]


def _overlaid(
    resources: Mapping[str, Any], status: Mapping[str, Any], *, actual: bool, names: Any = COMPUTE
) -> Mapping[str, Any]:
    """Resources with the compute requests of a status instead; the same object if they are the
    same, or the status has none."""
    reported: _Quantities = status.get("allocatedResources") or {}
    if actual:
        reported = (status.get("resources") or {}).get("requests") or reported
    requests: _Quantities = resources.get("requests") or {}
    compute = {name: reported[name] for name in COMPUTE if name in reported and name in names}
    if not compute or all(requests.get(name) == compute.get(name) for name in COMPUTE):
        return resources
    rest = {name: amount for name, amount in requests.items() if name not in COMPUTE}
    return {**resources, "requests": {**rest, **compute}}


# -- cgroup units, which the CRI uses, too ---------------------------------------------------
#
# Source: docs/reference/constants.csv: cpu shares, cpu quota, weight to shares.

MIN_SHARES = 2
MAX_SHARES = 262_144
MIN_QUOTA_US = 1_000
_MAX_WEIGHT = 10_000
_SPAN_SHARES, _SPAN_WEIGHT = MAX_SHARES - MIN_SHARES, _MAX_WEIGHT - 1
_PAGE_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def cpu_shares(millicores: int) -> int:
    """cgroup v1 shares for a cpu request; the runtime turns them into a v2 weight."""
    return max(MIN_SHARES, min(MAX_SHARES, millicores * 1024 // 1000))


def shares_to_weight(shares: int) -> int:
    """The cgroup v2 cpu.weight that the kubelet, and runtimes until 2025, write for shares."""
    known = max(MIN_SHARES, min(MAX_SHARES, shares))
    return 1 + (known - MIN_SHARES) * _SPAN_WEIGHT // _SPAN_SHARES


def weight_to_shares(weight: int) -> int:
    """The inverse of :func:`shares_to_weight`, as near as integers allow."""
    return (weight - 1) * _SPAN_SHARES // _SPAN_WEIGHT + MIN_SHARES


def shares_to_default_weight(shares: int) -> int:
    """The cpu.weight that runc 1.3.2, crun 1.23 and later write for shares.

    The default of cgroup v1, 1024, is that of v2, 100 (opencontainers/runc#4896).
    """
    if shares <= MIN_SHARES:
        return 1
    if shares >= MAX_SHARES:
        return _MAX_WEIGHT
    log = math.log2(shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))


def default_weight_to_shares(weight: int) -> int:
    """The inverse of :func:`shares_to_default_weight`, as near as integers allow."""
    known = max(1, min(_MAX_WEIGHT, weight))
    log = (math.sqrt(125**2 + 4 * 612 * (math.log10(known) + 7 / 34)) - 125) / 2
    return round(2**log)


def shares_of_container(weight: int, requested: Iterable[int]) -> int:
    """The shares for which a runtime wrote a container's cpu.weight.

    A weight does not show which of the two conversions its runtime used. Where the shares that
    the container requests make it by either, they are returned; else the nearer inverse.

    Args:
        requested: the shares that the container may have, most likely first.
    """
    candidates = tuple(requested)
    for shares in candidates:
        if weight in {shares_to_weight(shares), shares_to_default_weight(shares)}:
            return shares
    found = default_weight_to_shares(weight)
    if not candidates:
        return found
    return min(
        (found, max(weight_to_shares(weight), MIN_SHARES)),
        key=lambda each: abs(math.log(each / max(candidates[0], MIN_SHARES))),
    )


def cpu_quota(millicores: int, period_us: int) -> int:
    """Microseconds of cpu per period; 0 for no limit."""
    if millicores <= 0:
        return 0
    return max(MIN_QUOTA_US, min(millicores * period_us // 1000, 2**63 - 1))


def hugepage_limits(limits: Amounts) -> dict[str, int]:
    """Bytes by page size, named as in cgroups (``2MB``). Raises ValueError."""
    found = {}
    for name, amount in limits.items():
        if name.startswith(HUGEPAGES_PREFIX):
            size = whole(amounts({"": name.removeprefix(HUGEPAGES_PREFIX)})[""])
            found[page_size_name(size)] = whole(amount)
    return found


def page_size_name(size: int) -> str:
    """A page size in bytes as cgroups name it: ``2MB``."""
    for unit, suffix in _PAGE_UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit}{suffix}"
    return f"{size}B"


# -- memory protection and throttling, on cgroup v2 ------------------------------------------
#
# Source: docs/reference/behaviour-resources.md, rj: MemoryQoS; docs/reference/constants.csv:
# resources: memory.high (MemoryQoS).

PAGE = 4096
SAFE_KERNEL = (5, 9)
"""The first kernel whose throttling at memory.high cannot livelock."""


class MemoryQoS(Struct, frozen=True):
    """The settings of feature gate MemoryQoS; absent if it is off or this is not cgroup v2."""

    tiered: bool = False
    """memoryReservationPolicy TieredReservation: what pods request is reserved for them."""
    throttling_factor: float | None = 0.9
    """Share of the bytes between request and limit; None: nothing is throttled."""
    allocatable: int = 0
    """Bytes that pods may use on this node: the limit of a container without its own."""


class Protection(Struct, frozen=True):
    """Bytes that are never reclaimed (min), and that are reclaimed last (low). None: not set."""

    minimum: int | None = None
    low: int | None = None


def memory_protection(qos: MemoryQoS | None, quality: QoSClass, request: int) -> Protection:
    """The protection of a pod of that class that requests so many bytes."""
    if qos is None or not qos.tiered or request <= 0:
        return Protection()
    if quality is QoSClass.GUARANTEED:
        return Protection(minimum=request)
    return Protection(low=request)


def container_files(
    qos: MemoryQoS | None, quality: QoSClass, request: int, limit: int, *, pod_limit: int = 0
) -> Mapping[str, str]:
    """Files of a container's cgroup and their contents, on cgroup v2.

    With policy None the protections are written as 0, which clears earlier values. Without the
    gate memory.high is written as "max" for the same reason.

    Args:
        request: of the container, in bytes; 0: none.
        limit: of the container, in bytes; 0: none.
        pod_limit: pod-level limit in bytes. The pod's own memory.high throttles a container that
            has no limit then.
    """
    if qos is None:
        return {"memory.high": "max"}
    files: dict[str, str] = {}
    protection = memory_protection(qos, quality, request)
    if protection == Protection():
        protection = Protection(0, 0)
    if protection.minimum is not None:
        files["memory.min"] = str(protection.minimum)
    if protection.low is not None:
        files["memory.low"] = str(protection.low)
    if limit or not pod_limit:
        high = throttled_from(qos, request, limit or qos.allocatable)
        if high:
            files["memory.high"] = str(high)
    return files


def throttled_from(qos: MemoryQoS | None, request: int, limit: int) -> int:
    """memory.high of a container or pod, in whole pages; 0: none.

    There is none without a factor or limit, and where it would be no more than the request.
    """
    if qos is None or qos.throttling_factor is None or not limit or limit == request:
        return 0
    high = int((request + (limit - request) * qos.throttling_factor) // PAGE) * PAGE
    return high if high > request else 0


def livelock_risk(qos: MemoryQoS | None, kernel_version: str) -> bool:
    """Whether processes may hang at memory.high: kernels before 5.9 (``5.4.0-1-amd64``)."""
    found = re.match(r"(\d+)\.(\d+)", kernel_version)
    if qos is None or qos.throttling_factor is None or found is None:
        return False
    return (int(found[1]), int(found[2])) < SAFE_KERNEL


# -- size limits of volumes in memory, which a resize may change -----------------------------
#
# Source: docs/reference/behaviour.md, c10; KEP-6030.

MEMORY_VOLUMES_GATE = "InPlacePodVerticalScalingMemoryBackedVolumes"


class VolumeSizeError(Exception):
    """The size of a volume could not be changed; the message states why."""


def size_limits(pod: Pod) -> dict[str, str]:
    """The ``sizeLimit`` of each emptyDir in memory that has one, by the volume's name."""
    found = {}
    for volume in pod.spec.get("volumes") or ():
        source: Mapping[str, Any] = volume.get("emptyDir") or {}
        limit = source.get("sizeLimit")
        if source.get("medium") == "Memory" and limit and not same_size(limit, "0"):
            found[volume["name"]] = limit
    return found


def same_size(one: str, other: str) -> bool:
    """Whether two quantities are the same amount; one that can't be read equals only its text."""
    if one == other:
        return True
    try:
        return parse(one) == parse(other)
    except ValueError:
        return False


def changed_limits(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The limits in ``after`` that differ from those in ``before``; volumes of both only."""
    return {
        name: limit
        for name, limit in after.items()
        if name in before and not same_size(before[name], limit)
    }


def with_size_limits(pod: Pod, limits: Mapping[str, str]) -> list[Any] | None:
    """The pod's volumes with these size limits, by name; None: they have them already."""
    changed = changed_limits(size_limits(pod), limits) if limits else {}
    if not changed:
        return None
    volumes: list[Any] = pod.spec.get("volumes") or []
    return [
        {**volume, "emptyDir": {**volume["emptyDir"], "sizeLimit": changed[volume["name"]]}}
        if volume["name"] in changed
        else volume
        for volume in volumes
    ]
