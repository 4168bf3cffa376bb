"""reservedMemory: memory of each NUMA node that is kept from containers. Pure.

Source: docs/reference/behaviour-resources.md, rs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kubeletpy.base.api.quantity import value
from kubeletpy.config.settings import MemoryReservation
from kubeletpy.resources.placement.cpu_options import OptionError
from kubeletpy.resources.placement.memory_requests import HUGE, MEMORY
from kubeletpy.resources.placement.memory_state import NodeMemory, Table
from kubeletpy.resources.placement.topology import NumaNode

FIELD = "reservedMemory"
UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def empty_nodes(
    machine: Mapping[int, NumaNode],
    reservations: Sequence[MemoryReservation],
    total: Mapping[str, int],
) -> dict[int, NodeMemory]:
    """Every NUMA node of a machine, nothing booked in it.

    Args:
        total: what is reserved in total, by type, in bytes: kubeReserved, systemReserved and the
            hard memory threshold; reservedMemory summed over all nodes has to equal it.

    Raises:
        OptionError: the reservations do not, or name what does not exist.
    """
    reserved: dict[int, dict[str, int]] = {node: {} for node in machine}
    for reservation in reservations:
        if reservation.numa_node not in reserved:
            raise OptionError(FIELD, f"there is no NUMA node {reservation.numa_node}")
        for name, text in reservation.limits.items():
            reserved[reservation.numa_node][name] = value(text)
    _check_sums(reserved, total)
    return {node: _node(node, machine[node], reserved[node]) for node in sorted(machine)}


def huge_name(size: int) -> str:
    """The resource name for pages of this many bytes: ``hugepages-2Mi``."""
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
                FIELD,
                f"{name} of all NUMA nodes is {sums[name]} bytes together; it must be the "
                f"{total.get(name, 0)} that kubeReserved, systemReserved and evictionHard have",
            )
    if not sums[MEMORY]:
        raise OptionError(FIELD, "memoryManagerPolicy Static needs memory to be reserved")


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
