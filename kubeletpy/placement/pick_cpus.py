"""Which CPUs a container gets for itself. Pure.

Source: docs/reference/behaviour-resources.md, rr. The fullest units are split first, so that what
stays free stays whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil

from kubeletpy.placement.topology import (
    CpuTopology,
    Unit,
    by_core,
    by_numa,
    by_socket,
    by_uncore,
)
from kubeletpy.structs import Struct


class NotEnoughCpus(Exception):
    """Fewer CPUs are free than requested."""

    def __init__(self, requested: int, available: int) -> None:
        super().__init__(
            "not enough cpus available to satisfy request: "
            f"requested={requested}, available={available}"
        )


class PickOptions(Struct, frozen=True):
    """The cpuManagerPolicyOptions that affect which CPUs are picked.

    Attributes:
        group: how many CPUs stay together when spread over NUMA nodes; 0: they are not spread.
        across_cores: distribute-cpus-across-cores.
        align_uncore: prefer-align-cpus-by-uncorecache, which excludes the others.
    """

    group: int = 0
    across_cores: bool = False
    align_uncore: bool = False


PACKED = PickOptions()


def pick(
    topology: CpuTopology, free: frozenset[int], count: int, options: PickOptions = PACKED
) -> frozenset[int]:
    """Pick ``count`` of the ``free`` CPUs.

    Raises:
        NotEnoughCpus: not that many are free.
    """
    if count > len(free):
        raise NotEnoughCpus(count, len(free))
    if options.group and count % options.group == 0:
        spread = _over_nodes(topology, free, count, options)
        if spread is not None:
            return spread
    return _packed(topology, free, count, options)


def _packed(
    topology: CpuTopology, free: frozenset[int], count: int, options: PickOptions
) -> frozenset[int]:
    picking = _Picking(topology, set(free), count)
    big = picking.big
    for unit in big:
        picking.take_whole(unit)
    if options.align_uncore:
        picking.take_caches()
    if not options.across_cores:
        picking.take_whole(by_core)
        picking.take_cpus(picking.in_order((*big, by_core)))
    else:
        picking.take_cpus(picking.in_order(big[: big.index(by_socket) + 1]))
    return frozenset(picking.taken)


class _Picking:
    """The free CPUs, those taken, and how many are still needed."""

    def __init__(self, topology: CpuTopology, free: set[int], wanted: int) -> None:
        self._topology = topology
        self._free = free
        self.wanted = wanted
        self.taken: set[int] = set()
        self.big: tuple[Unit, ...] = (
            (by_numa, by_socket) if topology.numa_first else (by_socket, by_numa)
        )

    def take_cpus(self, ids: Iterable[int]) -> None:
        """Take the first of these, as many as are needed."""
        for each in ids:
            if self.wanted <= 0:
                return
            self._free.remove(each)
            self.taken.add(each)
            self.wanted -= 1

    def in_order(self, units: Sequence[Unit]) -> list[int]:
        """All free CPUs: those in units with the fewest free first; outer units decide first."""
        cpus = self._topology.cpus
        counts = [Counter(unit(cpus[each]) for each in self._free) for unit in units]

        def key(each: int) -> tuple[int, ...]:
            path: list[int] = []
            for unit, free in zip(units, counts, strict=True):
                path += (free[unit(cpus[each])], unit(cpus[each]))
            return (*path, each)

        return sorted(self._free, key=key)

    def take_whole(self, unit: Unit) -> None:
        """Take entirely free units, as long as one fits into the number needed."""
        for members in self._whole(unit):
            if len(members) <= self.wanted:
                self.take_cpus(members)

    def take_caches(self) -> None:
        """Whole L3 caches, then the rest from the first one into which it fits."""
        for cache in self._caches():
            self.take_whole(by_uncore)
            fits = self._part_of(cache)
            if len(fits) == self.wanted:
                self.take_cpus(fits)
                return

    def _part_of(self, cache: int) -> list[int]:
        """Free CPUs of a cache's lowest cores that have any: enough of them, if there are."""
        per_core = self._topology.threads_per_core
        free = self._topology.within(self._free, by_uncore, cache)
        cores = sorted(self._topology.grouped(free, by_core))[: ceil(self.wanted / per_core)]
        found = sorted(each for each in free if self._topology.cpus[each].core in cores)
        if self.wanted % 2 and per_core > 1 and len(found) > self.wanted:
            found.pop()
        return found

    def _caches(self) -> list[int]:
        order = self.in_order((*self._order_of(by_numa), by_uncore))
        return list(dict.fromkeys(self._topology.cpus[each].uncore for each in order))

    def _whole(self, unit: Unit) -> list[frozenset[int]]:
        everything = self._topology.grouped(self._topology.ids, unit)
        units = (*self._order_of(unit), unit)
        order = dict.fromkeys(unit(self._topology.cpus[each]) for each in self.in_order(units))
        return [everything[key] for key in order if everything[key] <= self._free]

    def _order_of(self, unit: Unit) -> tuple[Unit, ...]:
        """The units that enclose one, outermost first."""
        if unit is by_core:
            return self.big
        if unit is by_uncore:
            return (*self._order_of(by_numa), by_numa)
        return self.big[: self.big.index(unit)]


def _over_nodes(
    topology: CpuTopology, free: frozenset[int], count: int, options: PickOptions
) -> frozenset[int] | None:
    """An even share from as few NUMA nodes as can give it; None: there are none."""
    group = options.group
    rows = _Picking(topology, set(free), count)
    order = rows.in_order((by_numa,) if topology.numa_first else (by_socket, by_numa))
    nodes = list(dict.fromkeys(topology.cpus[each].numa for each in order))
    have = {node: len(topology.within(free, by_numa, node)) for node in nodes}
    for width in range(1, min(count // group, len(nodes)) + 1):
        best = _most_even(nodes, have, count, group, width)
        if best is not None:
            return _shares(topology, free, best, options)
    return None


def _most_even(
    nodes: Sequence[int], have: dict[int, int], count: int, group: int, width: int
) -> dict[int, int] | None:
    """How many CPUs each node gives, in the combination that leaves the rest most even."""
    found: tuple[float, dict[int, int]] | None = None
    for combination in combinations(nodes, width):
        share = count // width // group * group
        if any(have[node] < share for node in combination):
            continue
        given = dict.fromkeys(combination, share)
        left = count - share * width
        for each in _with_rest(have, given, left, group):
            uneven = _unevenness([have[node] - each.get(node, 0) for node in nodes])
            if found is None or uneven < found[0]:
                found = uneven, each
    return found[1] if found is not None else None


def _with_rest(
    have: dict[int, int], given: dict[int, int], left: int, group: int
) -> Iterable[dict[int, int]]:
    """The ways of taking what does not divide evenly, widest first."""
    if left == 0:
        yield given
        return
    for width in range(len(given), 0, -1):
        for some in combinations(given, width):
            more, rest = dict(given), left
            while rest:
                before = rest
                for node in some:
                    if rest and have[node] - more[node] >= group:
                        more[node] += group
                        rest -= group
                if rest == before:
                    break  # these do not have enough
            if not rest:
                yield more


def _unevenness(values: Sequence[int]) -> float:
    from statistics import pstdev  # seldom used, and 2 ms of imports

    return round(pstdev(values), 3)


def _shares(
    topology: CpuTopology, free: frozenset[int], given: dict[int, int], options: PickOptions
) -> frozenset[int]:
    share = min(given.values())
    left = set(free)
    for node in given:
        left -= _packed(topology, topology.within(left, by_numa, node), share, options)
    for node, count in given.items():
        for _ in range((count - share) // options.group):
            here = topology.within(left, by_numa, node)
            left -= _packed(topology, here, options.group, options)
    return free - left
