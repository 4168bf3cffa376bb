"""The data types of this package: readings of a cgroup, file system, interface, pod and node. Pure.

Data only, immutable. Times are Unix nanoseconds, sizes bytes, cpu time nanoseconds; None: the
machine does not report it. Must never depend on where a number comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.volumes.claims.on_disk import MeasuredVolume

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
    """Which pod."""

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
    """The machine."""

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
    words: Mapping[str, TreeUse] = field(default_factory=dict)
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
