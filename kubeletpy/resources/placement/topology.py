"""The CPUs of a machine and its NUMA nodes: what belongs together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from kubeletpy.base.structs import Struct, field


class Cpu(NamedTuple):
    """A logical CPU.

    Attributes:
        core: the lowest CPU id in its core.
        uncore: its L3 cache; where none is known, its socket.
    """

    id: int
    core: int
    socket: int
    numa: int
    uncore: int


Unit = Callable[[Cpu], int]
"""Returns the id of the group that a CPU belongs to."""

by_core: Unit = attrgetter("core")
by_socket: Unit = attrgetter("socket")
by_numa: Unit = attrgetter("numa")
by_uncore: Unit = attrgetter("uncore")


class CpuTopology(Struct, frozen=True, dict=True):
    """The online CPUs, by id."""

    cpus: Mapping[int, Cpu]

    @cached_property
    def ids(self) -> frozenset[int]:
        """The ids of all CPUs."""
        return frozenset(self.cpus)

    @cached_property
    def cores(self) -> Mapping[int, frozenset[int]]:
        """Core -> its CPUs."""
        return self.grouped(self.cpus, by_core)

    @cached_property
    def sockets(self) -> Mapping[int, frozenset[int]]:
        """Socket -> its CPUs."""
        return self.grouped(self.cpus, by_socket)

    @cached_property
    def nodes(self) -> Mapping[int, frozenset[int]]:
        """NUMA node -> its CPUs."""
        return self.grouped(self.cpus, by_numa)

    @property
    def threads_per_core(self) -> int:
        """How many CPUs a core has; where cores differ, the average, rounded down."""
        return len(self.cpus) // len(self.cores) if self.cores else 0

    @property
    def numa_first(self) -> bool:
        """Whether a NUMA node holds whole sockets, not the other way round."""
        return len(self.sockets) >= len(self.nodes)

    def grouped(self, ids: Iterable[int], unit: Unit) -> dict[int, frozenset[int]]:
        """The given CPUs by unit, units ascending."""
        found: dict[int, set[int]] = {}
        for each in ids:
            found.setdefault(unit(self.cpus[each]), set()).add(each)
        return {key: frozenset(found[key]) for key in sorted(found)}

    def within(self, ids: Collection[int], unit: Unit, key: int) -> frozenset[int]:
        """Those of the given CPUs that are in one unit."""
        return frozenset(each for each in ids if unit(self.cpus[each]) == key)


class NumaNode(Struct, frozen=True):
    """One NUMA node.

    Attributes:
        memory: bytes.
        huge_pages: bytes by size of a page in bytes.
    """

    memory: int
    huge_pages: Mapping[int, int] = field(default_factory=dict)
