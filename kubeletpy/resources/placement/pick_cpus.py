"""Picks the CPUs that a container gets for itself. Pure.

Source: docs/reference/behaviour-resources.md, rr. The fullest units are split first, so that what
stays free stays whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil

from kubeletpy.base.structs import Component, Struct
from kubeletpy.resources.placement.model import (
    CpuTopology,
    Unit,
    by_core,
    by_numa,
    by_socket,
    by_uncore,
)


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
        by_socket: align-by-socket: a spread uses as few sockets as it can.
        largest_cores: full-pcpus-only: cores with more threads first, where cores differ.
    """

    group: int = 0
    across_cores: bool = False
    align_uncore: bool = False
    by_socket: bool = False
    largest_cores: bool = False


PACKED = PickOptions()


def pick(
    topology: CpuTopology,
    free: frozenset[int],
    count: int,
    options: PickOptions = PACKED,
    least_nodes: int = 0,
) -> frozenset[int]:
    """Pick ``count`` of the ``free`` CPUs.

    Args:
        least_nodes: how many NUMA nodes a spread uses, where that many can give CPUs.

    Raises:
        NotEnoughCpus: not that many are free.
    """
    if count > len(free):
        raise NotEnoughCpus(count, len(free))
    if options.group and count % options.group == 0:
        spread = _over_nodes(topology, free, count, options, least_nodes)
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
        picking.take_whole(by_core, largest_first=options.largest_cores)
        picking.take_cpus(picking.in_order((*big, by_core)))
    else:
        picking.take_cpus(picking.across_cores())
    return frozenset(picking.taken)


class _Picking(Component):
    """The free CPUs, those taken, and how many are still needed."""

    topology: CpuTopology
    free: set[int]
    desired: int

    def __post_init__(self) -> None:
        self.taken: set[int] = set()
        self.big: tuple[Unit, ...] = (
            (by_numa, by_socket) if self.topology.numa_first else (by_socket, by_numa)
        )

    def take_cpus(self, ids: Iterable[int]) -> None:
        """Take the first of these, as many as are needed."""
        for each in ids:
            if self.desired <= 0:
                return
            self.free.remove(each)
            self.taken.add(each)
            self.desired -= 1

    def in_order(self, units: Sequence[Unit]) -> list[int]:
        """All free CPUs: those in units with the fewest free first; outer units decide first."""
        cpus = self.topology.cpus
        counts = [Counter(unit(cpus[each]) for each in self.free) for unit in units]

        def key(each: int) -> tuple[int, ...]:
            path: list[int] = []
            for unit, free in zip(units, counts, strict=True):
                path += (free[unit(cpus[each])], unit(cpus[each]))
            return (*path, each)

        return sorted(self.free, key=key)

    def across_cores(self) -> list[int]:
        """All free CPUs, socket by socket: one thread of each core before any second one.

        Entirely free cores are first, then those of which others use the fewest threads.
        """
        topology = self.topology
        position: dict[int, tuple[int, int]] = {}
        for core, members in topology.grouped(self.free, by_core).items():
            used = len(topology.cores[core]) - len(members)
            for thread, each in enumerate(sorted(members)):
                position[each] = thread, used
        order = self.in_order(self.big[: self.big.index(by_socket) + 1])
        sockets = dict.fromkeys(topology.cpus[each].socket for each in order)
        rank = {socket: number for number, socket in enumerate(sockets)}
        return sorted(order, key=lambda each: (rank[topology.cpus[each].socket], *position[each]))

    def take_whole(self, unit: Unit, *, largest_first: bool = False) -> None:
        """Take entirely free units, as long as one fits into the number needed."""
        units = self._whole(unit)
        for members in sorted(units, key=len, reverse=True) if largest_first else units:
            if len(members) <= self.desired:
                self.take_cpus(members)

    def take_caches(self) -> None:
        """Whole L3 caches, then the rest from the first one of which cores fit exactly.

        Where none do, the rest is from the first cache that has enough free CPUs.
        """
        caches = self._caches()
        self.take_whole(by_uncore)
        for cache in caches:
            fits = self._part_of(cache)
            if len(fits) == self.desired:
                self.take_cpus(fits)
                return
        for cache in caches:
            free = self.topology.within(self.free, by_uncore, cache)
            if len(free) >= self.desired:
                self.take_cpus(_packed(self.topology, free, self.desired, PACKED))

    def _part_of(self, cache: int) -> list[int]:
        """Free CPUs of a cache's lowest cores that have any: enough of them, if there are."""
        per_core = self.topology.threads_per_core
        free = self.topology.within(self.free, by_uncore, cache)
        cores = sorted(self.topology.grouped(free, by_core))[: ceil(self.desired / per_core)]
        found = sorted(each for each in free if self.topology.cpus[each].core in cores)
        if self.desired % 2 and per_core > 1 and len(found) > self.desired:
            found.pop()
        return found

    def _caches(self) -> list[int]:
        order = self.in_order((*self._order_of(by_numa), by_uncore))
        return list(dict.fromkeys(self.topology.cpus[each].uncore for each in order))

    def _whole(self, unit: Unit) -> list[frozenset[int]]:
        everything = self.topology.grouped(self.topology.ids, unit)
        units = (*self._order_of(unit), unit)
        order = dict.fromkeys(unit(self.topology.cpus[each]) for each in self.in_order(units))
        return [everything[key] for key in order if everything[key] <= self.free]

    def _order_of(self, unit: Unit) -> tuple[Unit, ...]:
        """The units that enclose one, outermost first."""
        if unit is by_core:
            return self.big
        if unit is by_uncore:
            return (*self._order_of(by_numa), by_numa)
        return self.big[: self.big.index(unit)]


def _over_nodes(
    topology: CpuTopology, free: frozenset[int], count: int, options: PickOptions, least: int
) -> frozenset[int] | None:
    """Return an even share of as few NUMA nodes as can give it, or None if there are none.

    A hint sets the fewest (``least``): where its nodes have no even share, they give what they
    have, as evenly as possible.
    """
    group = options.group
    rows = _Picking(topology, set(free), count)
    order = rows.in_order((by_numa,) if topology.numa_first else (by_socket, by_numa))
    nodes = list(dict.fromkeys(topology.cpus[each].numa for each in order))
    have = {node: len(topology.within(free, by_numa, node)) for node in nodes}
    giving = [node for node in nodes if have[node] >= group]
    most = min(count // group, len(giving))
    widths = range(max(min(least, most), 1), most + 1)
    socket = {topology.cpus[each].numa: topology.cpus[each].socket for each in free}
    sockets = len(set(socket.values()))
    ways = [
        (candidates, limit)
        for limit in (range(1, sockets + 1) if options.by_socket else (sockets,))
        for candidates in ((_even, _leveled) if limit < sockets else (_even,))
    ]
    for candidates, limit in ways:
        for width in widths:
            found = [
                shares
                for some in combinations(giving, width)
                if not options.by_socket or len({socket[node] for node in some}) <= limit
                for shares in candidates({node: have[node] for node in some}, count, group)
            ]
            if found:
                return _shares(topology, free, _most_even(found, have), options)
    level = _leveled({node: have[node] for node in giving}, count, group) if least > 1 else ()
    return next((_shares(topology, free, each, options) for each in level), None)


def _most_even(found: Sequence[dict[int, int]], have: dict[int, int]) -> dict[int, int]:
    """Those shares that leave the rest of all nodes most even."""

    def unevenness(shares: dict[int, int]) -> float:
        from statistics import pstdev  # seldom used, and 2 ms of imports

        return round(pstdev(free - shares.get(node, 0) for node, free in have.items()), 3)

    return min(found, key=unevenness)


def _even(have: dict[int, int], count: int, group: int) -> Iterable[dict[int, int]]:
    """The ways in which each of these nodes gives an even share, and some give the remainder."""
    share = count // len(have) // group * group
    if all(free >= share for free in have.values()):
        yield from _with_rest(have, dict.fromkeys(have, share), count - share * len(have), group)


def _leveled(have: dict[int, int], count: int, group: int) -> Iterable[dict[int, int]]:
    """The shares in which nodes with less than an even share give all they have."""
    groups = {node: free // group for node, free in have.items()}
    left = count // group
    if 0 < left <= sum(groups.values()):
        shares = {}
        for done, node in enumerate(sorted(groups, key=lambda each: groups[each])):
            number = min(groups[node], left // (len(groups) - done))
            shares[node] = number * group
            left -= number
        yield shares


def _with_rest(
    have: dict[int, int], shares: dict[int, int], left: int, group: int
) -> Iterable[dict[int, int]]:
    """The ways of taking what does not divide evenly, widest first."""
    if left == 0:
        yield shares
        return
    for width in range(len(shares), 0, -1):
        for some in combinations(shares, width):
            more, rest = dict(shares), left
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


def _shares(
    topology: CpuTopology, free: frozenset[int], shares: dict[int, int], options: PickOptions
) -> frozenset[int]:
    share = min(shares.values())
    left = set(free)
    for node in shares:
        left -= _packed(topology, topology.within(left, by_numa, node), share, options)
    for node, count in shares.items():
        for _ in range((count - share) // options.group):
            here = topology.within(left, by_numa, node)
            left -= _packed(topology, here, options.group, options)
    return free - left
