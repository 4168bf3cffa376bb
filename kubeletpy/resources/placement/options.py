"""The settings of the managers of topology, CPUs and memory, checked for this machine. Pure.

They are cpuManagerPolicyOptions, topologyManagerPolicyOptions, and the CPUs and the memory of each
NUMA node that are reserved for the system. Source: docs/reference/behaviour-resources.md, rq, rs,
rt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kubeletpy.base.api.quantity import value
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config.settings import MemoryReservation
from kubeletpy.resources.placement.model import (
    HUGE,
    MAX_NODES,
    MEMORY,
    CpuTopology,
    NumaNode,
    format_ids,
)
from kubeletpy.resources.placement.pick_cpus import NotEnoughCpus, PickOptions, pick
from kubeletpy.resources.placement.state import NodeMemory, Table

CPU_OPTIONS = "cpuManagerPolicyOptions"
FULL_CORES = "full-pcpus-only"
ACROSS_NUMA = "distribute-cpus-across-numa"
BY_SOCKET = "align-by-socket"
ACROSS_CORES = "distribute-cpus-across-cores"
STRICT = "strict-cpu-reservation"
BY_UNCORE = "prefer-align-cpus-by-uncorecache"
GATES = {
    BY_SOCKET: "CPUManagerPolicyAlphaOptions",
    ACROSS_CORES: "CPUManagerPolicyAlphaOptions",
    ACROSS_NUMA: "CPUManagerPolicyBetaOptions",
}
"""The feature gates that some options require."""
MUTUALLY_EXCLUSIVE = (
    (FULL_CORES, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_UNCORE, ACROSS_CORES),
    (BY_UNCORE, ACROSS_NUMA),
)
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class OptionError(Exception):
    """Placement settings that are impossible, on this machine or anywhere.

    ``field`` is the setting, and the text states what would be right.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class CpuOptions(Struct, frozen=True):
    """The options of cpuManagerPolicyOptions that are on."""

    full_cores: bool = False
    across_numa: bool = False
    by_socket: bool = False
    across_cores: bool = False
    strict: bool = False
    by_uncore: bool = False

    def picking(self, topology: CpuTopology) -> PickOptions:
        """The options that affect which CPUs are picked."""
        group = 0
        if self.across_numa:
            group = topology.threads_per_core if self.full_cores else 1
        return PickOptions(
            group, self.across_cores, self.by_uncore, self.by_socket, self.full_cores
        )


def read_cpu_options(options: Mapping[str, str], enabled: Callable[[str], bool]) -> CpuOptions:
    """Read cpuManagerPolicyOptions.

    Args:
        options: names that are known (the settings are checked), and their values.
        enabled: whether a feature gate is on.

    Raises:
        OptionError: a value is invalid, a gate is off, or two options exclude each other.
    """
    on = {name for name, text in options.items() if parse_boolean(CPU_OPTIONS, name, text)}
    for name in sorted(options):
        gate = GATES.get(name)
        if gate is not None and not enabled(gate):
            raise OptionError(CPU_OPTIONS, f"{name} needs the feature gate {gate}")
    for a, b in MUTUALLY_EXCLUSIVE:
        if a in on and b in on:
            raise OptionError(CPU_OPTIONS, f"{a} and {b} can not be used together")
    return CpuOptions(
        full_cores=FULL_CORES in on,
        across_numa=ACROSS_NUMA in on,
        by_socket=BY_SOCKET in on,
        across_cores=ACROSS_CORES in on,
        strict=STRICT in on,
        by_uncore=BY_UNCORE in on,
    )


def check_sockets(options: CpuOptions, topology: CpuTopology, *, single_node: bool) -> None:
    """Raise OptionError if CPUs can't be aligned by socket on this machine.

    ``single_node``: topologyManagerPolicy is single-numa-node.
    """
    if not options.by_socket:
        return
    if single_node:
        raise OptionError(
            CPU_OPTIONS,
            f"{BY_SOCKET} and topologyManagerPolicy single-numa-node can not be used together",
        )
    if len(topology.sockets) > len(topology.nodes):
        raise OptionError(
            CPU_OPTIONS, f"{BY_SOCKET} is not for machines with more sockets than NUMA nodes"
        )


def parse_boolean(field: str, name: str, text: str) -> bool:
    """Return whether an option is on. Raises OptionError."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise OptionError(field, f"{name} must be true or false, not {text[:40]!r}")


# topologyManagerPolicyOptions.

CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWED = "max-allowable-numa-nodes"
TOPOLOGY_OPTIONS = "topologyManagerPolicyOptions"


class TopologyOptions(Struct, frozen=True):
    """The values of topologyManagerPolicyOptions.

    Attributes:
        closest: of node sets of the same size, prefer the one whose nodes are closer together.
        max_nodes: on a machine with more NUMA nodes the agent does not start.
    """

    closest: bool = False
    max_nodes: int = MAX_NODES


def read_topology_options(options: Mapping[str, str]) -> TopologyOptions:
    """Read topologyManagerPolicyOptions, whose names are valid. Raises OptionError."""
    max_nodes = MAX_NODES
    if (text := options.get(MAX_ALLOWED)) is not None:
        if not text.isdecimal() or int(text) < MAX_NODES:
            raise OptionError(
                TOPOLOGY_OPTIONS, f"{MAX_ALLOWED} must be a number not below {MAX_NODES}"
            )
        max_nodes = int(text)
    return TopologyOptions(
        parse_boolean(TOPOLOGY_OPTIONS, CLOSEST, options.get(CLOSEST, "false")), max_nodes
    )


# Reservations for the system.

RESERVED_MEMORY = "reservedMemory"
UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def reserve_cpus(
    topology: CpuTopology, listed: frozenset[int], count: int, options: CpuOptions
) -> frozenset[int]:
    """Return the CPUs that are no container's under cpuManagerPolicy static.

    They are those listed, or else ``count`` of the machine's.

    Raises:
        OptionError: there is nothing to reserve, or there are not that many CPUs.
    """
    if count <= 0:
        raise OptionError(
            "cpuManagerPolicy",
            "static needs CPUs that are no container's: set systemReserved.cpu, kubeReserved.cpu "
            "or reservedSystemCPUs",
        )
    if listed:
        reserved = listed
    else:
        try:
            picking = replace(options.picking(topology), largest_cores=False)
            reserved = pick(topology, topology.ids, count, picking)
        except NotEnoughCpus as error:
            raise OptionError(
                "cpuManagerPolicy", f"static can't reserve {count} CPUs: {error}"
            ) from error
    if not reserved <= topology.ids:
        missing = format_ids(reserved - topology.ids)
        raise OptionError("reservedSystemCPUs", f"these CPUs are not online: {missing}")
    return reserved


def empty_nodes(
    machine: Mapping[int, NumaNode],
    reservations: Sequence[MemoryReservation],
    total: Mapping[str, int],
) -> dict[int, NodeMemory]:
    """Return every NUMA node of a machine with its reservation, nothing booked in it.

    Args:
        total: the bytes reserved in total, by type: kubeReserved, systemReserved and the hard
            memory threshold; reservedMemory summed over all nodes has to equal it.

    Raises:
        OptionError: the reservations do not, or name what does not exist.
    """
    reserved: dict[int, dict[str, int]] = {node: {} for node in machine}
    for reservation in reservations:
        if reservation.numa_node not in reserved:
            raise OptionError(RESERVED_MEMORY, f"there is no NUMA node {reservation.numa_node}")
        for name, text in reservation.limits.items():
            reserved[reservation.numa_node][name] = value(text)
    _check_sums(reserved, total)
    return {node: _node(node, machine[node], reserved[node]) for node in sorted(machine)}


def huge_name(size: int) -> str:
    """Return the resource name for pages of this many bytes: ``hugepages-2Mi``."""
    for unit, one in UNITS:
        if size % one == 0:
            return f"{HUGE}{size // one}{unit}"
    return f"{HUGE}{size}"


def _check_sums(reserved: Mapping[int, Mapping[str, int]], total: Mapping[str, int]) -> None:
    sums = Counter[str]()
    for of_node in reserved.values():
        sums.update(of_node)
    for name in sorted(sums.keys() | total.keys()):
        if sums[name] != total.get(name, 0):
            raise OptionError(
                RESERVED_MEMORY,
                f"{name} of all NUMA nodes is {sums[name]} bytes together; it must be the "
                f"{total.get(name, 0)} that kubeReserved, systemReserved and evictionHard have",
            )
    if not sums[MEMORY]:
        raise OptionError(RESERVED_MEMORY, "memoryManagerPolicy Static needs memory to be reserved")


def _node(node: int, found: NumaNode, reserved: Mapping[str, int]) -> NodeMemory:
    tables, pages = {}, 0
    for size, total in found.huge_pages.items():
        name = huge_name(size)
        tables[name] = _table(total, reserved.get(name, 0), 0)
        pages += total
    tables[MEMORY] = _table(found.memory, reserved.get(MEMORY, 0), pages)
    return NodeMemory(0, tables, (node,))


def _table(total: int, reserved: int, other: int) -> Table:
    free = max(total - reserved - other, 0)
    return Table(total, reserved, free, 0, free)
