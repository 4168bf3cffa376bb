"""The limits and the names of pods' cgroups, as cgroup files and systemd have them. Pure.

Source: docs/reference/behaviour.md, k3, k4; docs/reference/constants.csv: resources;
docs/reference/names.csv: cgroup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from kubeletpy.base.api.quantity import milli_value, parse, value, whole
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods import resources as pods_resources
from kubeletpy.pods.pod import Pod


class CgroupError(Exception):
    """A cgroup could not be created, written or removed; the message names it and states why."""


class CgroupBusy(CgroupError):
    """A cgroup could not be removed yet: processes still run in it."""


class CgroupsUnavailable(CgroupError):
    """The machine has no cgroups for pods; the message states what to do."""


class InvalidCgroupName(ValueError):
    """A text that cannot be part of a cgroup's name."""


# Limits, and the files that they are written to.

NO_LIMIT = -1
DEFAULT_PERIOD_US = 100_000
HUGEPAGES_UNBOUNDED = 1 << 62


class CgroupResources(Struct, frozen=True):
    """Limits of one cgroup. None: leave unchanged; -1: no limit."""

    shares: int | None = None
    """cgroup v1 cpu shares; written as a weight in v2."""
    quota_us: int | None = None
    period_us: int | None = None
    memory: int | None = None
    """Bytes."""
    memory_min: int | None = None
    """Bytes that are protected; cgroup v2 only, like the next field."""
    memory_low: int | None = None
    """Bytes that are reclaimed last."""
    memory_high: int | None = None
    """Bytes above which processes are throttled."""
    pids: int | None = None
    hugepages: Mapping[str, int] = field(default_factory=dict)
    """Bytes by page size as cgroups name it: ``2MB``."""


class PodCgroupSettings(Struct, frozen=True):
    """The configuration of pods' cgroups."""

    cpu_cfs_quota: bool = True
    cpu_cfs_period_us: int = DEFAULT_PERIOD_US
    pids_limit: int = NO_LIMIT
    """podPidsLimit; not positive: no limit but the node's."""
    hugepage_sizes: tuple[str, ...] = ()
    memory_qos: pods_resources.MemoryQoS | None = None
    """None: gate MemoryQoS is off, or this is not cgroup v2."""


def rounded_quota(quota_us: int, period_us: int) -> int:
    """The quota that systemd keeps for the one requested: a whole percentage of a CPU, rounded up.

    Source: systemd.resource-control(5), CPUQuota.
    """
    if quota_us < 0:
        return NO_LIMIT
    percent = -(-quota_us * 100 // period_us)
    return percent * period_us // 100


def v1_files(resources: CgroupResources) -> Iterator[tuple[str, str, str]]:
    """(controller, file, text) in the order to write them: the period before its quota."""
    if resources.shares is not None:
        yield "cpu", "cpu.shares", str(resources.shares)
    if resources.period_us is not None:
        yield "cpu", "cpu.cfs_period_us", str(resources.period_us)
    if resources.quota_us:
        yield "cpu", "cpu.cfs_quota_us", str(resources.quota_us)
    if resources.memory:
        yield "memory", "memory.limit_in_bytes", str(resources.memory)
    if resources.pids:
        yield "pids", "pids.max", _or_max(resources.pids)
    for size, limit in resources.hugepages.items():
        yield "hugetlb", f"hugetlb.{size}.limit_in_bytes", str(limit)


def v2_files(resources: CgroupResources) -> Iterator[tuple[str, str, str]]:
    """Like :func:`v1_files`, for the one hierarchy of cgroup v2."""
    if resources.shares is not None:
        yield "cpu", "cpu.weight", str(pods_resources.shares_to_weight(resources.shares))
    if resources.quota_us or resources.period_us:
        quota = _or_max(resources.quota_us or NO_LIMIT)
        period = f" {resources.period_us}" if resources.period_us else ""
        yield "cpu", "cpu.max", f"{quota}{period}"
    if resources.memory:
        yield "memory", "memory.max", _or_max(resources.memory)
    if resources.memory_min is not None:
        yield "memory", "memory.min", str(resources.memory_min)
    if resources.memory_low is not None:
        yield "memory", "memory.low", str(resources.memory_low)
    if resources.memory_high:
        yield "memory", "memory.high", _or_max(resources.memory_high)
    if resources.pids:
        yield "pids", "pids.max", _or_max(resources.pids)
    for size, limit in resources.hugepages.items():
        yield "hugetlb", f"hugetlb.{size}.max", str(limit)


def _or_max(number: int) -> str:
    return "max" if number < 0 else str(number)


# The limits of pods, of groups and of the node.


def pod_resources(pod: Pod, settings: PodCgroupSettings) -> CgroupResources:
    """Return the limits of a pod as a whole. Raises ValueError for an invalid quantity.

    A Burstable pod is limited in cpu or memory only if each of its containers is.
    """
    requests, limits = (
        pods_resources.pod_requests(pod, with_claims=True),
        pods_resources.pod_limits(pod, with_claims=True),
    )
    quality = pods_resources.qos_class(pod)
    pages = pods_resources.hugepage_limits(requests)
    pids = settings.pids_limit if settings.pids_limit > 0 else None
    hugepages = {size: pages.get(size, 0) for size in settings.hugepage_sizes}
    if quality is pods_resources.QoSClass.BEST_EFFORT:
        return CgroupResources(shares=pods_resources.MIN_SHARES, pids=pids, hugepages=hugepages)
    quota = period = memory = None
    if pods_resources.limited(pod, "cpu"):
        period = settings.cpu_cfs_period_us
        quota = (
            pods_resources.cpu_quota(milli(limits, "cpu"), period)
            if settings.cpu_cfs_quota
            else NO_LIMIT
        )
    if pods_resources.limited(pod, "memory"):
        memory = whole(limits["memory"])
    protected = pods_resources.memory_protection(settings.memory_qos, quality, _memory_request(pod))
    return CgroupResources(
        shares=pods_resources.cpu_shares(milli(requests, "cpu")),
        quota_us=quota,
        period_us=period,
        memory=memory,
        pids=pids,
        hugepages=hugepages,
        memory_min=protected.minimum,
        memory_low=protected.low,
        memory_high=_throttled(pod, settings) or None,
    )


def qos_group(cpu_milli: int, hugepage_sizes: Iterable[str] = ()) -> CgroupResources:
    """Return the limits of a QoS class whose pods together request ``cpu_milli`` millicores.

    0, for BestEffort, gives the minimum of cpu under contention.
    """
    unbounded = dict.fromkeys(hugepage_sizes, HUGEPAGES_UNBOUNDED)
    return CgroupResources(shares=pods_resources.cpu_shares(cpu_milli), hugepages=unbounded)


def kubepods_group(
    capacity: Mapping[str, str],
    reserved: Iterable[Mapping[str, str]],
    *,
    max_pids: int,
    reserved_cpus: int = 0,
    enforce: bool,
    hugepage_sizes: Iterable[str] = (),
) -> CgroupResources:
    """Return the limits of all pods: what is left of the node, ignoring eviction thresholds.

    ``reserved`` are kubeReserved and systemReserved; ``reserved_cpus`` (of reservedSystemCPUs)
    replaces their cpu. Without ``enforce`` the limits are all that the node has. Raises ValueError.
    """
    taken = list(reserved) if enforce else []
    cpu = milli_value(capacity["cpu"])
    if enforce and reserved_cpus:
        cpu -= reserved_cpus * 1000
    else:
        cpu -= sum(milli_value(entry.get("cpu", "0")) for entry in taken)
    memory = unreserved_memory(value(capacity["memory"]), taken)
    pids = max_pids - sum(value(entry.get("pid", "0")) for entry in taken)
    pages = pods_resources.hugepage_limits({n: parse(q) for n, q in capacity.items()})
    return CgroupResources(
        shares=pods_resources.cpu_shares(cpu),
        memory=memory,
        pids=max(pids, 0) if max_pids > 0 else None,
        hugepages={size: pages.get(size, 0) for size in hugepage_sizes},
    )


def unreserved_memory(capacity: int, reserved: Iterable[Mapping[str, str]]) -> int:
    """Bytes that are left for pods, ignoring eviction thresholds. Raises ValueError."""
    return max(capacity - sum(value(entry.get("memory", "0")) for entry in reserved), 0)


def reserved_group(
    reserved: Mapping[str, str],
    *,
    compressible: bool,
    hugepage_sizes: Iterable[str] = (),
    keep_memory: bool = False,
) -> CgroupResources:
    """Return the limits of the daemons of systemReserved or kubeReserved. Raises ValueError.

    ``compressible``: cpu only, which can be reclaimed without killing anything. ``keep_memory``
    (gate MemoryQoS): protect its memory.
    """
    shares = pods_resources.cpu_shares(milli_value(reserved["cpu"])) if "cpu" in reserved else None
    if compressible:
        return CgroupResources(shares=shares)
    pages = pods_resources.hugepage_limits({n: parse(q) for n, q in reserved.items()})
    memory = value(reserved["memory"]) if "memory" in reserved else None
    return CgroupResources(
        shares=shares,
        memory=memory,
        memory_min=memory if keep_memory else None,
        pids=value(reserved["pid"]) if "pid" in reserved else None,
        hugepages={size: pages.get(size, 0) for size in hugepage_sizes},
    )


def burstable_cpu(pod: Pod) -> int:
    """A pod's share of the Burstable group's cpu, in millicores. Raises ValueError."""
    if pods_resources.qos_class(pod) is not pods_resources.QoSClass.BURSTABLE:
        return 0
    return milli(pods_resources.pod_requests(pod, with_claims=True), "cpu")


def protection(pod: Pod, settings: PodCgroupSettings) -> CgroupResources:
    """The memory settings of a pod whose request has changed. Raises ValueError."""
    found = pods_resources.memory_protection(
        settings.memory_qos, pods_resources.qos_class(pod), _memory_request(pod)
    )
    high = _throttled(pod, settings)
    return CgroupResources(
        memory_min=found.minimum, memory_low=found.low, memory_high=NO_LIMIT if high == 0 else high
    )


def _throttled(pod: Pod, settings: PodCgroupSettings) -> int | None:
    """memory.high of a pod with pod-level resources; 0: not throttled, None: not set.

    Claims do not count. Source: docs/reference/behaviour-resources.md, rj: ka12. Raises
    ValueError.
    """
    qos = settings.memory_qos
    if qos is None or qos.throttling_factor is None or not pods_resources.pod_level_set(pod):
        return None
    limit = (
        whole(pods_resources.pod_limits(pod)["memory"])
        if pods_resources.limited(pod, "memory")
        else 0
    )
    return pods_resources.throttled_from(qos, _memory_request(pod, with_claims=False), limit)


def memory_kept(pod: Pod) -> tuple[int, int]:
    """A pod's share of the groups' memory: bytes requested by Guaranteed and by Burstable pods.

    Raises ValueError.
    """
    request, quality = _memory_request(pod), pods_resources.qos_class(pod)
    return (
        request if quality is pods_resources.QoSClass.GUARANTEED else 0,
        request if quality is pods_resources.QoSClass.BURSTABLE else 0,
    )


def kept_group(guaranteed: int, burstable: int) -> CgroupResources:
    """Return the protection of all pods: a group must protect what its children are to protect.

    The kernel ignores memory.low below a group without it, memory.min of the group included.
    """
    return CgroupResources(memory_min=guaranteed + burstable, memory_low=burstable)


class ReservedMemory(Struct, frozen=True):
    """qosReserved: withhold a share of higher classes' requests from the groups below them."""

    percent: int
    allocatable: int
    """Bytes that all pods may have."""

    def limits(self, guaranteed: int, burstable: int) -> Mapping[pods_resources.QoSClass, int]:
        """Bytes that the groups may use, given the requests of both classes."""
        rest = self.allocatable - guaranteed * self.percent // 100
        last = rest - burstable * self.percent // 100
        return {pods_resources.QoSClass.BURSTABLE: rest, pods_resources.QoSClass.BEST_EFFORT: last}


def _memory_request(pod: Pod, *, with_claims: bool = True) -> int:
    requests = pods_resources.pod_requests(pod, with_claims=with_claims)
    return whole(requests["memory"]) if "memory" in requests else 0


def milli(amounts: pods_resources.Amounts, name: str) -> int:
    """Return an amount in thousandths, rounded up, or 0 if there is none."""
    return whole(amounts[name] * 1000) if name in amounts else 0


# Names, for both drivers. No path is made of a text that could lead out of the hierarchy.

CgroupName = tuple[str, ...]
"""Plain components below the root of the hierarchy; a driver writes them as a path."""

KUBEPODS = "kubepods"
POD_PREFIX = "pod"
SLICE = ".slice"
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:@-]{0,200}")


class CgroupDriver(StrEnum):
    """The creator of cgroups; the values are those of KubeletConfiguration's cgroupDriver."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


def parse_root(text: str) -> CgroupName:
    """KubeletConfiguration's cgroupRoot: a path such as ``/`` or ``/nodes/a``.

    Raises:
        InvalidCgroupName: a component is not a plain name.
    """
    return tuple(_checked(part) for part in text.split("/") if part)


def parse_existing(text: str) -> str:
    """The path of an existing cgroup (systemReservedCgroup), with a leading slash.

    Raises:
        InvalidCgroupName: it would leave the hierarchy.
    """
    parts = [part for part in text.split("/") if part]
    if not parts or any(part in (".", "..") or "\0" in part for part in parts):
        raise InvalidCgroupName(f"not the path of a cgroup: {text[:100]!r}")
    return "/" + "/".join(parts)


def _checked(part: str) -> str:
    if not _COMPONENT.fullmatch(part) or part.endswith(SLICE):
        raise InvalidCgroupName(f"can not be part of a cgroup's name: {part[:100]!r}")
    return part


def to_cgroupfs(name: CgroupName) -> str:
    """The path below a hierarchy's mount point: ``/kubepods/burstable/pod1``."""
    return "/" + "/".join(name)


def to_systemd(name: CgroupName) -> str:
    """The path of a slice with its parents: systemd reads a dash in its name as a level.

    ``/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_B.slice``
    """
    escaped = [part.replace("-", "_") for part in name]
    slices = ["-".join(escaped[: depth + 1]) + SLICE for depth in range(len(escaped))]
    return "/" + "/".join(slices)


class PodCgroupNames(Struct, frozen=True):
    """The tree of pods' cgroups on a node: the place of each group and pod, in a driver's form."""

    driver: CgroupDriver = CgroupDriver.CGROUPFS
    root: CgroupName = ()
    """cgroupRoot; ``kubepods`` is below it."""

    def path(self, name: CgroupName) -> str:
        """The path of a name below each hierarchy's mount point."""
        return to_systemd(name) if self.driver is CgroupDriver.SYSTEMD else to_cgroupfs(name)

    @property
    def kubepods(self) -> str:
        """The group of all pods; Guaranteed pods are its children."""
        return self.group(pods_resources.QoSClass.GUARANTEED)

    def group(self, quality: pods_resources.QoSClass) -> str:
        """The parent of the pods of a QoS class."""
        return self.path(self._group(quality))

    def pod(self, uid: str, quality: pods_resources.QoSClass) -> str:
        """A pod's own cgroup.

        Raises:
            InvalidCgroupName: the uid has characters that are invalid in a uid.
        """
        if not _COMPONENT.fullmatch(uid):
            raise InvalidCgroupName(f"a pod's uid can not be part of a path: {uid[:100]!r}")
        return self.path((*self._group(quality), f"{POD_PREFIX}{uid}"))

    def pod_uid(self, directory: str) -> str | None:
        """The uid of the pod whose cgroup has this last component; None when it is not a pod's."""
        if self.driver is CgroupDriver.SYSTEMD:
            if not directory.endswith(SLICE):
                return None
            directory = directory.removesuffix(SLICE).rsplit("-", 1)[-1].replace("_", "-")
        uid = directory.removeprefix(POD_PREFIX)
        if uid == directory or not _COMPONENT.fullmatch(uid):
            return None
        return uid

    def _group(self, quality: pods_resources.QoSClass) -> CgroupName:
        kubepods = (*self.root, KUBEPODS)
        if quality is pods_resources.QoSClass.GUARANTEED:
            return kubepods
        return (*kubepods, quality.value.lower())


# The systemd unit properties that hold a cgroup's limits.
#
# Source: org.freedesktop.systemd1(5), systemd.resource-control(5).

Properties = dict[str, tuple[str, object]]
"""Property name -> D-Bus signature and value."""

INFINITY = (1 << 64) - 1
"""systemd's "no limit" in every unsigned 64-bit property."""
_UNITS = (".slice", ".service", ".scope")


def unit_name(path: str) -> str | None:
    """Return the unit that owns a cgroup path, or None if systemd has no unit of that name.

    >>> unit_name("/kubepods.slice/kubepods-burstable.slice")
    'kubepods-burstable.slice'
    """
    name = path.rpartition("/")[2]
    return name if name.endswith(_UNITS) else None


def new_slice(version: int) -> Properties:
    """Properties of a slice that is created, besides its limits: every controller is enabled."""
    block = "IOAccounting" if version == 2 else "BlockIOAccounting"
    accounting = ("CPUAccounting", "MemoryAccounting", "TasksAccounting", block)
    return {
        "Description": ("s", "Kubernetes pods"),
        "DefaultDependencies": ("b", False),
        **dict.fromkeys(accounting, ("b", True)),
    }


def limit_properties(version: int, resources: CgroupResources) -> Properties:
    """Return the properties of the limits that are set. systemd has none for huge pages."""
    found: Properties = {}
    if resources.shares is not None:
        if version == 2:
            found["CPUWeight"] = ("t", pods_resources.shares_to_weight(resources.shares))
        else:
            found["CPUShares"] = ("t", resources.shares)
    if resources.period_us:
        found["CPUQuotaPeriodUSec"] = ("t", resources.period_us)
    if resources.quota_us:
        found["CPUQuotaPerSecUSec"] = ("t", _per_second(resources.quota_us, resources.period_us))
    if resources.memory:
        found["MemoryMax" if version == 2 else "MemoryLimit"] = ("t", _limit(resources.memory))
    if version == 2:
        if resources.memory_min is not None:
            found["MemoryMin"] = ("t", resources.memory_min)
        if resources.memory_low is not None:
            found["MemoryLow"] = ("t", resources.memory_low)
        if resources.memory_high:
            found["MemoryHigh"] = ("t", _limit(resources.memory_high))
    if resources.pids:
        found["TasksMax"] = ("t", _limit(resources.pids))
    return found


def _per_second(quota_us: int, period_us: int | None) -> int:
    period = period_us or DEFAULT_PERIOD_US
    return INFINITY if quota_us < 0 else rounded_quota(quota_us, period) * 1_000_000 // period


def _limit(number: int) -> int:
    return INFINITY if number < 0 else number
