"""Readings of cgroups, file systems, interfaces, pods and the node, and of the runtime. Pure.

Data types, their conversion from the CRI, the current cpu rate, and how read and reported numbers
are merged. Times are Unix nanoseconds, sizes bytes, cpu time nanoseconds; None: the machine does
not report it. Time comes with the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.volumes.claims.model import MeasuredVolume

UNLIMITED = 1 << 62
"""From this value on, a limit means that there is none (v1 writes a large number)."""


class PsiLine(Struct, frozen=True):
    """Time that tasks were stalled: ``total`` in microseconds, averages in percent."""

    total: int
    avg10: float
    avg60: float
    avg300: float


class Psi(Struct, frozen=True):
    """Pressure of one resource: some or all tasks were stalled."""

    some: PsiLine
    full: PsiLine


class DeviceIo(Struct, frozen=True):
    """A cgroup's I/O on one block device."""

    major: int
    minor: int
    read_bytes: int = 0
    write_bytes: int = 0
    reads: int = 0
    writes: int = 0


class GroupStats(Struct, frozen=True):
    """The usage of one cgroup, process or machine.

    Attributes:
        at: when it was read.
        swap: bytes in swap; ``swap_limit``: of swap alone, without memory.
        limit, reservation: of memory; None: unlimited or unknown.
        failures, throttled_at_high: how often memory met its limit (memory.max), and memory.high.
        dirty, writeback: bytes of page cache to be written, and being written.
        file_refaults, anon_refaults: pages that were needed again soon after their eviction.
        quota_us, period_us, shares: of cpu.
        weight: cpu.weight of cgroup v2, for which the shares are a guess until more is known.
        faults, own_faults: page faults with and without those of child groups.
        pids, pids_max: tasks (threads).
    """

    at: int = 0
    cpu_ns: int | None = None
    user_ns: int | None = None
    system_ns: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    quota_us: int | None = None
    period_us: int | None = None
    shares: int | None = None
    weight: int | None = None
    memory: int | None = None
    working_set: int | None = None
    rss: int | None = None
    cache: int | None = None
    mapped_file: int | None = None
    kernel: int | None = None
    active_file: int | None = None
    inactive_file: int | None = None
    limit: int | None = None
    reservation: int | None = None
    max_memory: int | None = None
    failures: int | None = None
    throttled_at_high: int | None = None
    dirty: int | None = None
    writeback: int | None = None
    scanned_pages: int | None = None
    reclaimed_pages: int | None = None
    file_refaults: int | None = None
    anon_refaults: int | None = None
    oom_kills: int | None = None
    faults: int | None = None
    major_faults: int | None = None
    own_faults: int | None = None
    own_major_faults: int | None = None
    swap: int | None = None
    swap_limit: int | None = None
    pids: int | None = None
    pids_max: int | None = None
    devices: tuple[DeviceIo, ...] = ()
    cpu_psi: Psi | None = None
    memory_psi: Psi | None = None
    io_psi: Psi | None = None
    available: int | None = None
    """Memory that may still be used, if the source reports it."""

    @property
    def memory_available(self) -> int | None:
        """Memory below the limit; None without limit."""
        if self.available is not None or self.limit is None or self.working_set is None:
            return self.available
        return max(0, self.limit - self.working_set)

    @property
    def swap_available(self) -> int | None:
        """Swap below the limit; None without limit."""
        if self.swap_limit is None or self.swap is None:
            return None
        return max(0, self.swap_limit - self.swap)


_FIELDS = tuple(each for each in GroupStats.__struct_fields__ if each != "devices")


def filled(first: GroupStats | None, second: GroupStats | None) -> GroupStats | None:
    """``first`` with missing values taken from ``second``.

    Exception: the available part of a limit that ``first`` has. It would not fit the working set
    of ``first``, which was read at another moment.
    """
    if first is None or second is None:
        return first or second
    missing = {
        name: value
        for name in _FIELDS
        if getattr(first, name) is None and (value := getattr(second, name)) is not None
    }
    if first.limit is not None and first.working_set is not None:
        missing.pop("available", None)
    if not first.devices and second.devices:
        missing["devices"] = second.devices
    return replace(first, **missing) if missing else first


class Interface(Struct, frozen=True):
    """Traffic of a network interface since it was created."""

    name: str
    rx_bytes: int = 0
    rx_errors: int = 0
    tx_bytes: int = 0
    tx_errors: int = 0
    rx_packets: int = 0
    rx_dropped: int = 0
    tx_packets: int = 0
    tx_dropped: int = 0


class Network(Struct, frozen=True):
    """The interfaces of a network namespace; ``default``: the one that represents it."""

    at: int
    interfaces: tuple[Interface, ...]
    default: str = "eth0"


class FsSpace(Struct, frozen=True):
    """A whole file system; ``device`` as mounted, empty when unknown."""

    at: int
    capacity: int
    available: int
    free: int
    inodes: int
    inodes_free: int
    device: str = ""


class TreeUse(Struct, frozen=True):
    """The size of a directory tree or writable layer, and its file system.

    ``at_least``: there was more than was counted; the numbers are lower bounds. ``beyond``: and it
    can't be counted, so no limit can be enforced by counting. ``uncounted``: not measured yet.
    """

    at: int
    used: int | None
    inodes: int | None
    space: FsSpace | None = None
    at_least: bool = False
    beyond: bool = False
    uncounted: bool = False


class GroupKind(StrEnum):
    """The kind of owner of a cgroup."""

    NODE = "node"
    SYSTEM = "system"
    PODS = "pods"
    POD = "pod"
    SANDBOX = "sandbox"
    CONTAINER = "container"


class PodRef(Struct, frozen=True):
    """Identifies a pod, for labels."""

    uid: str
    name: str
    namespace: str


class CgroupUsage(Struct, frozen=True):
    """A cgroup, or its substitute, with its usage.

    Attributes:
        path: below the hierarchies' mount points; empty when it has none here.
        name: of a container in its pod, or of a system container (kubelet, runtime, pods, misc).
        id: the runtime's, of sandboxes and containers.
        started_at: Unix nanoseconds, 0 when unknown.
        processes, descriptors: counted where requested.
    """

    kind: GroupKind
    stats: GroupStats | None
    path: str = ""
    name: str = ""
    pod: PodRef | None = None
    id: str = ""
    image: str = ""
    created_at: int = 0
    started_at: int = 0
    layer: TreeUse | None = None
    processes: int | None = None
    descriptors: int | None = None


class PodReading(Struct, frozen=True):
    """A pod: its cgroup, its sandbox, its running containers, its network namespace."""

    ref: PodRef
    group: CgroupUsage
    sandbox: CgroupUsage | None
    containers: tuple[CgroupUsage, ...]
    network: Network | None = None
    processes: int | None = None


class RlimitStats(Struct, frozen=True):
    """The maximum and current number of tasks on the machine."""

    at: int
    max_pids: int | None
    tasks: int | None


class NodeReading(Struct, frozen=True):
    """The machine, its daemons and the cgroups above pods."""

    group: CgroupUsage
    network: Network | None = None
    root: FsSpace | None = None
    """The file system of --root-dir."""
    limits: RlimitStats | None = None
    system: tuple[CgroupUsage, ...] = ()
    groups: tuple[CgroupUsage, ...] = ()
    """kubepods and its groups by QoS class."""


class Reading(Struct, frozen=True):
    """One collection. ``problem``: why pods could not be read completely; empty when they could."""

    at: int
    node: NodeReading
    pods: tuple[PodReading, ...]
    problem: str = ""


class VolumeUse(Struct, frozen=True):
    """A volume; ``ephemeral``: it counts as the pod's ephemeral storage."""

    name: str
    use: TreeUse
    ephemeral: bool


class PodDisk(Struct, frozen=True):
    """A pod's disk usage apart from its containers' writable layers."""

    volumes: tuple[VolumeUse, ...] = ()
    logs: Mapping[str, TreeUse] = field(default_factory=dict)
    """Logs by container name."""
    others: tuple[TreeUse, ...] = ()
    """Logs of no container, etc-hosts, all termination message files."""
    parts: Mapping[str, TreeUse] = field(default_factory=dict)
    """Termination message files by container name; also included in ``others``."""
    pending: bool = False
    """Some of it has not been measured yet, and is omitted."""


class Disks(Struct, frozen=True):
    """File systems and trees; ``pods`` by uid."""

    root: FsSpace | None = None
    image: TreeUse | None = None
    containers: TreeUse | None = None
    pods: Mapping[str, PodDisk] = field(default_factory=dict)
    claimed: Mapping[str, Sequence[MeasuredVolume]] = field(default_factory=dict)
    """Volumes of claims, drivers and disks, by pod uid: measured earlier."""


# Cpu rates: from the usage at two times.
#
# The window is the time between two requests, at least WINDOW_MIN_NS and, with frequent requests,
# up to twice WINDOW_NS. Nothing is sampled without a request. The window of a container that has
# just started begins at its start; for others the request waits for a second sample
# (:meth:`Rates.lacks`).

WINDOW_MIN_NS = 500_000_000
WINDOW_NS = 10_000_000_000
FRESH_NS = 60_000_000_000
"""The longest window since a start: the average of a longer time is not the current usage."""
FORGET_NS = 600_000_000_000
"""Ten minutes: older samples do not show current usage.

Source: docs/reference/constants.csv: cpu usage cache.
"""


class _Window(Struct, frozen=True):
    begun_at: int
    begun_ns: int
    last_at: int
    last_ns: int
    rate: int | None = None


class Rates:
    """Remembers the samples of each key."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def nano_cores(self, key: str, at: int, used_ns: int, since: int = 0) -> int | None:
        """The rate as of a new sample, in billionths of a core; None when there is no earlier one.

        Args:
            key: whose cpu time it is.
            at: when it was read, Unix nanoseconds.
            used_ns: cpu time since its start.
            since: when the cpu time was 0, Unix nanoseconds; 0: not known.
        """
        old = self._windows.get(key)
        if old is None and since > 0 and 0 < at - since < FRESH_NS:
            old = self._windows[key] = _Window(since, 0, since, 0)
        if old is None or used_ns < old.last_ns or not 0 <= at - old.last_at < FORGET_NS:
            self._windows[key] = _Window(at, used_ns, at, used_ns)
            return None
        window = at - old.begun_at
        if window < WINDOW_MIN_NS:
            return old.rate
        rate = (used_ns - old.begun_ns) * 1_000_000_000 // window
        begun_at, begun_ns = old.begun_at, old.begun_ns
        if window >= WINDOW_NS:
            # the next window begins at the last sample of this one, so it is never empty
            begun_at, begun_ns = old.last_at, old.last_ns
            if at - begun_at >= WINDOW_NS:
                begun_at, begun_ns = at, used_ns
        self._windows[key] = _Window(begun_at, begun_ns, at, used_ns, rate)
        return rate

    def lacks(self, keys: Iterable[str], now: int) -> bool:
        """Whether one of these has no rate, but will have one after WINDOW_MIN_NS."""
        return any(
            each is not None and each.rate is None and each.begun_at > now - WINDOW_MIN_NS
            for each in map(self._windows.get, keys)
        )

    def forget_others(self, keys: Iterable[str]) -> None:
        """Forget the samples of all other keys."""
        kept = set(keys)
        self._windows = {key: each for key, each in self._windows.items() if key in kept}


# The runtime's stats of containers and sandboxes.
#
# Used for containers whose cgroups are not on this machine (sandboxes that are virtual machines),
# for writable layers, which only the runtime has, and for everything when configured so.


class Layer(Struct, frozen=True):
    """A writable layer; ``mountpoint``: of its file system.

    ``uncounted``: the runtime has not measured it yet.
    """

    at: int
    used: int | None
    inodes: int | None
    mountpoint: str
    uncounted: bool = False


class CriContainer(Struct, frozen=True):
    """A container as the runtime reports it."""

    stats: GroupStats
    layer: Layer | None


class CriSandbox(Struct, frozen=True):
    """A sandbox as the runtime reports it."""

    stats: GroupStats
    network: Network | None
    processes: int | None


class CriStats(Struct, frozen=True):
    """Everything that the runtime reported, by id."""

    containers: dict[str, CriContainer]
    sandboxes: dict[str, CriSandbox]


def from_containers(stats: Iterable[cri.ContainerStats]) -> CriStats:
    """The answer of ListContainerStats."""
    return CriStats({each.attributes.id: _container(each) for each in stats}, {})


def from_sandboxes(stats: Iterable[cri.PodSandboxStats]) -> CriStats:
    """The answer of ListPodSandboxStats."""
    found = CriStats({}, {})
    for each in stats:
        linux = each.linux
        found.sandboxes[each.attributes.id] = CriSandbox(
            _stats(linux),
            _network(linux.network) if linux.HasField("network") else None,
            _value(linux.process, "process_count") if linux.HasField("process") else None,
        )
        for container in linux.containers:
            found.containers[container.attributes.id] = _container(container)
    return found


def _container(stats: cri.ContainerStats) -> CriContainer:
    layer = None
    if stats.HasField("writable_layer"):
        supplied = stats.writable_layer
        used, inodes = _value(supplied, "used_bytes"), _value(supplied, "inodes_used")
        # a layer that was not measured yet has no timestamp
        at = supplied.timestamp or stats.cpu.timestamp
        layer = Layer(at, used, inodes, supplied.fs_id.mountpoint, uncounted=not supplied.timestamp)
    return CriContainer(_stats(stats), layer)


def _stats(usage: cri.ContainerStats | cri.LinuxPodSandboxStats) -> GroupStats:
    cpu, memory = usage.cpu, usage.memory
    swap = usage.swap if isinstance(usage, cri.ContainerStats) else None
    used = _value(swap, "swap_usage_bytes") if swap is not None else None
    swap_left = _value(swap, "swap_available_bytes") if swap is not None else None
    return GroupStats(
        at=cpu.timestamp or memory.timestamp,
        cpu_ns=_value(cpu, "usage_core_nano_seconds"),
        memory=_value(memory, "usage_bytes"),
        working_set=_value(memory, "working_set_bytes"),
        rss=_value(memory, "rss_bytes"),
        # a runtime without a limit reports 0 or the remainder of an absurdly large one
        available=_plausible(_value(memory, "available_bytes")),
        faults=_value(memory, "page_faults"),
        major_faults=_value(memory, "major_page_faults"),
        swap=used,
        swap_limit=None if swap_left is None or used is None else swap_left + used,
        cpu_psi=_psi(cpu),
        memory_psi=_psi(memory),
        io_psi=_psi(usage.io),
    )


def _plausible(value: int | None) -> int | None:
    return value if value and value < 1 << 60 else None


def _value(message: object, field: str) -> int | None:
    has = message.HasField(field)  # type: ignore[attr-defined]
    return int(getattr(message, field).value) if has else None


def _psi(usage: cri.CpuUsage | cri.MemoryUsage | cri.IoUsage) -> Psi | None:
    if not usage.HasField("psi"):
        return None
    return Psi(_line(usage.psi.Some), _line(usage.psi.Full))


def _line(data: cri.PsiData) -> PsiLine:
    return PsiLine(data.Total, data.Avg10, data.Avg60, data.Avg300)


def _network(usage: cri.NetworkUsage) -> Network:
    found = [_interface(each) for each in usage.interfaces]
    default = usage.default_interface.name
    if default and all(each.name != default for each in found):
        found.insert(0, _interface(usage.default_interface))
    return Network(usage.timestamp, tuple(found), default)


def _interface(usage: cri.NetworkInterfaceUsage) -> Interface:
    return Interface(
        usage.name,
        rx_bytes=usage.rx_bytes.value,
        rx_errors=usage.rx_errors.value,
        tx_bytes=usage.tx_bytes.value,
        tx_errors=usage.tx_errors.value,
    )


# Read and reported numbers as one.


def mount_points(reported: CriStats) -> set[str]:
    """Mount points of the file systems of writable layers."""
    layers = (each.layer for each in reported.containers.values())
    return {layer.mountpoint for layer in layers if layer is not None and layer.mountpoint}


def completed(
    pod: PodReading, reported: CriStats, spaces: Mapping[str, FsSpace], *, prefer_runtime: bool
) -> PodReading:
    """A pod completed with the runtime's numbers.

    Args:
        pod: as it was read.
        reported: by the runtime.
        spaces: file systems by mount point.
        prefer_runtime: the runtime's numbers take precedence over what was read; else the reverse.
    """

    def joined(ours: GroupStats | None, theirs: GroupStats | None) -> GroupStats | None:
        return filled(theirs, ours) if prefer_runtime else filled(ours, theirs)

    def container(group: CgroupUsage) -> CgroupUsage:
        found = reported.containers.get(group.id)
        if found is None:
            return group
        return replace(group, stats=joined(group.stats, found.stats), layer=_layer(found, spaces))

    done = replace(pod, containers=tuple(container(group) for group in pod.containers))
    sandbox = reported.sandboxes.get(pod.sandbox.id) if pod.sandbox is not None else None
    if sandbox is None:
        return done
    network = sandbox.network or pod.network if prefer_runtime else pod.network or sandbox.network
    return replace(
        done,
        group=replace(pod.group, stats=joined(pod.group.stats, sandbox.stats)),
        network=network,
        processes=sandbox.processes if pod.processes is None else pod.processes,
    )


def _layer(container: CriContainer, spaces: Mapping[str, FsSpace]) -> TreeUse | None:
    layer = container.layer
    if layer is None:
        return None
    space = spaces.get(layer.mountpoint)
    return TreeUse(layer.at, layer.used, layer.inodes, space, uncounted=layer.uncounted)
