"""The CPUs picked: tables, and random machines with rules that any pick has to keep."""

from __future__ import annotations

import itertools
import random

import pytest

from kubeletpy.resources.placement.model import (
    Cpu,
    CpuTopology,
    Unit,
    by_core,
    by_numa,
    by_socket,
    format_ids,
    parse_ids,
)
from kubeletpy.resources.placement.pick_cpus import PACKED, NotEnoughCpus, PickOptions, pick
from tests.kit.machines import machine, one_node_of_two_sockets

SINGLE = machine(cores=4, threads=2)
"""8 CPUs: core 0 has 0 and 4."""
DUAL = CpuTopology({i: Cpu(i, i % 6, i % 2, i % 2, i % 2) for i in range(12)})
"""Two sockets with 3 cores of 2 threads, numbered in turn: socket 0 has 0, 2, 4, 6, 8, 10."""
LARGE = machine(sockets=2, nodes=2, cores=10, threads=2)
"""80 CPUs in 4 NUMA nodes: node 0 has 0-9 and 40-49."""
CACHES = machine(cores=16, caches=4)
"""16 CPUs in L3 caches of 4."""
CACHES_SMT = machine(cores=8, threads=2, caches=2)
SMT4 = machine(cores=4, threads=4, caches=2)
FOUR = machine(sockets=2, nodes=2, cores=4, threads=2)
"""32 CPUs in 4 NUMA nodes: node 0 has 0-3 and 16-19."""
EIGHT = machine(sockets=2, nodes=4, cores=6)
WIDE = CpuTopology({i: Cpu(i, i, i // 2, i // 4, i // 2) for i in range(8)})
"""Four sockets in two NUMA nodes."""
HYBRID = CpuTopology({i: Cpu(i, i & ~1 if i < 4 else i, 0, 0, i // 4) for i in range(8)})
"""Two cores of two threads, then four of one."""
PAIRS = CpuTopology({i: Cpu(i, i & ~1, i // 8, i // 8, i // 8) for i in range(16)})
"""Two sockets of four cores; threads of a core have adjacent numbers: core 0 has 0 and 1."""
UNEVEN = CpuTopology({i: Cpu(i, i & ~1 if i < 4 else i, 0, 0, 0) for i in range(8)})
"""HYBRID with one L3 cache."""
ISSUE = CpuTopology({i: Cpu(i, i % 128, i % 128 // 64, i % 128 // 32, 0) for i in range(256)})
"""256 CPUs in 4 NUMA nodes of two sockets: node 0 has 0-31 and 128-159."""
SPREAD = PickOptions(1)
NEAR = PickOptions(1, by_socket=True)
CORES = PickOptions(2)
THIN = PickOptions(across_cores=True)
UNCORE = PickOptions(align_uncore=True)


@pytest.mark.parametrize(
    ("topology", "free", "count", "options", "expected"),
    [
        (SINGLE, "0-7", 0, PACKED, ""),
        # one CPU comes from a core that is already split
        (SINGLE, "0-7", 1, PACKED, "0"),
        (SINGLE, "1,3,5-7", 1, PACKED, "6"),
        # whole cores before single CPUs
        (SINGLE, "0,1,4,5,6", 3, PACKED, "0,4,6"),
        (SINGLE, "1,3,5-7", 4, PACKED, "1,3,5,7"),
        (SINGLE, "0-7", 8, PACKED, "0-7"),
        # the socket with fewer free CPUs
        (DUAL, "1-5,7-11", 1, PACKED, "2"),
        (DUAL, "0-11", 6, PACKED, "0,2,4,6,8,10"),
        (DUAL, "1-11", 6, PACKED, "1,3,5,7,9,11"),
        (DUAL, "0-11", 8, PACKED, "0,2,4,6,8,10,1,7"),
        (LARGE, "0-79", 64, PACKED, "0-31,40-71"),
        # an even share of the fewest NUMA nodes that can provide it
        (DUAL, "0-11", 8, SPREAD, "0,6,2,8,1,7,3,9"),
        (LARGE, "0-79", 64, SPREAD, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
        (LARGE, "0-79", 48, SPREAD, "0-7,10-17,20-27,40-47,50-57,60-67"),
        (LARGE, "1-29,32-39,41-69,72-79", 48, SPREAD, "1-8,10-17,20-27,41-48,50-57,60-67"),
        (LARGE, "2-29,31-39,42-69,71-79", 48, SPREAD, "10-17,20-27,31-38,50-57,60-67,71-78"),
        (DUAL, "0-11", 0, SPREAD, ""),
        (DUAL, "0-2", 1, SPREAD, "0"),
        # the remainder goes where the rest stays most even
        (WIDE, "0-7", 5, SPREAD, "0-2,4-5"),
        (FOUR, "0-8,16", 9, SPREAD, "0-7,16"),
        (LARGE, "0-38,40-48,50-55,60", 35, SPREAD, "0-5,9-14,16,20-29,40-45,50-54,60"),
        (LARGE, "0-8,10-28,30-39,50-55,70-72", 18, CORES, "10-14,30-34,50-54,70-72"),
        (
            EIGHT,
            "1-21,23-31,33,35,37-38,40-47",
            38,
            CORES,
            "1-4,6-15,18-21,24-31,33,35,37-38,40-47",
        ),
        # no share is even
        (WIDE, "1-4", 4, CORES, "1-4"),
        (DUAL, "9", 1, CORES, "9"),
        # the count is no multiple of complete cores: packed
        (DUAL, "0-11", 7, CORES, "0,1,2,4,6,8,10"),
        # one thread of each core first
        (SINGLE, "0-7", 4, THIN, "0-3"),
        (DUAL, "0-11", 4, THIN, "0,2,4,6"),
        (FOUR, "0-4,8,12,16", 6, THIN, "0-3,8,12"),
        (WIDE, "1-4", 1, THIN, "4"),
        (PAIRS, "0-7", 4, THIN, "0,2,4,6"),
        (PAIRS, "0-7", 5, THIN, "0-2,4,6"),
        (PAIRS, "0-15", 4, THIN, "0,2,4,6"),
        (PAIRS, "0-6,8-15", 4, THIN, "0,2,4,6"),
        # free cores, then threads of cores of which others use a part, then second threads
        (PAIRS, "1-7", 3, THIN, "2,4,6"),
        (PAIRS, "1-7", 5, THIN, "1-4,6"),
        (PAIRS, "1,3,4-15", 8, THIN, "8-15"),
        (SMT4, "1-15", 4, THIN, "1-4"),
        (SMT4, "1-3,5-7,12", 3, THIN, "1-3"),
        (SMT4, "1-3,5-7,12", 4, THIN, "1-3,12"),
        (HYBRID, "0-7", 6, THIN, "0,2,4-7"),
        # L3 caches: complete ones, then the first into which the rest fits
        (CACHES, "1-15", 10, UNCORE, "1,2,4-11"),
        (CACHES, "0-15", 4, UNCORE, "0-3"),
        (CACHES, "2-15", 4, UNCORE, "4-7"),
        (CACHES, "2,3,6-15", 2, UNCORE, "2,3"),
        (CACHES, "3,5-15", 2, UNCORE, "5-6"),
        (CACHES_SMT, "1-15", 2, UNCORE, "4,12"),
        (CACHES_SMT, "0-15", 8, UNCORE, "0-3,8-11"),
        (CACHES_SMT, "1-15", 8, UNCORE, "4-7,12-15"),
        (DUAL, "0-9,11", 5, UNCORE, "0,2,4,6,8"),
        # the second thread of the last core stays when the count is odd
        (SINGLE, "0-2,4-7", 3, UNCORE, "0-1,4"),
        (SMT4, "1-15", 6, UNCORE, "1,4-5,8-9,13"),
        (HYBRID, "0-2", 1, UNCORE, "2"),
        # no cores fit exactly: the first cache that has enough, not several
        (CACHES_SMT, "1,5,8-15", 4, UNCORE, "1,8-10"),
        (UNEVEN, "0-7", 3, UNCORE, "4-6"),
        # a machine with more sockets than NUMA nodes: whole nodes come first
        (WIDE, "1-7", 4, PACKED, "4-7"),
        (one_node_of_two_sockets(), "1-3", 2, PACKED, "2-3"),
    ],
)
def test_picks(
    topology: CpuTopology, free: str, count: int, options: PickOptions, expected: str
) -> None:
    got = pick(topology, parse_ids(free), count, options)
    assert format_ids(got) == format_ids(parse_ids(expected))


@pytest.mark.parametrize(
    ("topology", "free", "count", "spread", "shares"),
    [
        (ISSUE, "0-255", 176, (SPREAD, 0), [59, 59, 58]),
        (ISSUE, "0-255", 176, (SPREAD, 4), [44, 44, 44, 44]),
        (ISSUE, "0-255", 176, (CORES, 4), [44, 44, 44, 44]),
        (ISSUE, "0-255", 2, (SPREAD, 4), [1, 1]),
        (ISSUE, "0-255", 6, (CORES, 4), [2, 2, 2]),
        # a node that has less than its share gives all it has
        (ISSUE, "0-105,128-255", 176, (SPREAD, 4), [45, 45, 44, 42]),
        (ISSUE, "0-100,128-223", 176, (CORES, 4), [58, 58, 56, 4]),
        # a node that has nothing takes no part
        (ISSUE, "0-95,128-223", 120, (SPREAD, 4), [40, 40, 40]),
        # one socket, though two nodes of both would leave the rest more even
        (EIGHT, "0-47", 12, (SPREAD, 0), [6, 6]),
        (EIGHT, "0-21,24-45", 22, (NEAR, 0), [6, 6, 6, 4]),
        (EIGHT, "0-21,24-45", 26, (NEAR, 0), [6, 5, 5, 5, 5]),
    ],
)
def test_shares_of_nodes(
    topology: CpuTopology, free: str, count: int, spread: tuple[PickOptions, int], shares: list[int]
) -> None:
    options, nodes = spread
    got = pick(topology, parse_ids(free), count, options, nodes)
    supplied = [len(members) for members in topology.grouped(got, by_numa).values()]
    assert sorted(supplied, reverse=True) == shares


def test_not_enough() -> None:
    with pytest.raises(NotEnoughCpus, match="requested=3, available=2"):
        pick(SINGLE, frozenset((0, 1)), 3)


SHAPES = [
    machine(cores=4),
    machine(cores=4, threads=2),
    machine(sockets=2, cores=2, threads=2),
    machine(sockets=2, nodes=2, cores=2, threads=2),
    machine(sockets=1, nodes=2, cores=4, caches=2),
    machine(sockets=4, cores=2),
    PAIRS,
    one_node_of_two_sockets(),
]
OPTIONS = [PACKED, SPREAD, CORES, THIN, UNCORE, NEAR, PickOptions(2, by_socket=True)]


def some_picks(seed: int) -> list[tuple[CpuTopology, frozenset[int], int]]:
    rng, found = random.Random(seed), []
    for topology in (*SHAPES, UNEVEN):
        ids = sorted(topology.ids)
        free = frozenset(rng.sample(ids, rng.randint(1, len(ids))))
        found.append((topology, free, rng.randint(0, len(free))))
    return found


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("options", OPTIONS)
def test_any_pick_is_so_many_of_the_free(seed: int, options: PickOptions) -> None:
    for topology, free, count in some_picks(seed):
        got = pick(topology, free, count, options)
        assert len(got) == count
        assert got <= free
        assert got == pick(topology, free, count, options), "the same again"


def touched(topology: CpuTopology, ids: frozenset[int], unit: Unit) -> int:
    return len({unit(topology.cpus[each]) for each in ids})


def fewest(topology: CpuTopology, free: frozenset[int], count: int, unit: Unit) -> int:
    """Fewest units that contain `count` free CPUs, found by trying every set of units."""
    members = topology.grouped(free, unit)
    for width in range(len(members) + 1):
        for some in itertools.combinations(members.values(), width):
            if sum(map(len, some)) >= count:
                return width
    raise AssertionError


@pytest.mark.parametrize("seed", range(60))
def test_on_a_free_machine_no_pick_is_scattered(seed: int) -> None:
    """The pick uses the fewest sockets, NUMA nodes and cores that a search of all sets finds."""
    rng = random.Random(seed)
    for topology in SHAPES[:-1]:
        count = rng.randint(1, len(topology.cpus))
        got = pick(topology, topology.ids, count)
        for unit in (by_socket, by_numa, by_core):
            expected = fewest(topology, topology.ids, count, unit)
            assert touched(topology, got, unit) == expected, (unit, count, sorted(got))


@pytest.mark.parametrize("seed", range(60))
def test_at_most_one_free_core_is_split(seed: int) -> None:
    """At most one free core is split, and only if no core that is already split would do."""
    for topology, free, count in some_picks(seed):
        whole = [members for members in topology.cores.values() if members <= free]
        got = pick(topology, free, count)
        broken = [members for members in whole if members & got and not members <= got]
        assert len(broken) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_an_even_share_is_even(seed: int) -> None:
    rng = random.Random(seed)
    topology = machine(sockets=2, nodes=2, cores=4, threads=2)
    count = rng.randint(1, len(topology.cpus))
    got = pick(topology, topology.ids, count, SPREAD)
    shares = [len(members) for members in topology.grouped(got, by_numa).values()]
    assert max(shares) - min(shares) <= 1
    assert len(shares) == fewest(topology, topology.ids, count, by_numa)


def partly_used(seed: int) -> tuple[random.Random, CpuTopology, frozenset[int]]:
    """A machine of several nodes with some CPUs in use, and its random numbers."""
    rng = random.Random(seed)
    shape = {"sockets": rng.randint(1, 2), "nodes": rng.randint(1, 3), "cores": rng.randint(1, 4)}
    numbered = machine(**shape, threads=rng.choice((1, 2, 2, 4)))
    name = list(numbered.ids)
    rng.shuffle(name)
    core = {key: min(name[each] for each in cpus) for key, cpus in numbered.cores.items()}
    topology = CpuTopology(
        {
            name[each.id]: Cpu(name[each.id], core[each.core], each.socket, each.numa, each.uncore)
            for each in numbered.cpus.values()
        }
    )
    free = frozenset(rng.sample(sorted(topology.ids), rng.randint(1, len(topology.ids))))
    return rng, topology, free


@pytest.mark.parametrize("seed", range(150))
def test_across_cores_no_second_thread_before_each_core_has_one(seed: int) -> None:
    """However CPUs are numbered, a part of a socket has as many cores as it can have."""
    rng, topology, free = partly_used(seed)
    socket = rng.choice(sorted(topology.grouped(free, by_socket)))
    here = topology.within(free, by_socket, socket)
    nodes = [n for n in topology.nodes.values() if n & topology.sockets[socket]]
    count = rng.randint(0, min(len(here), min(map(len, nodes)) - 1))
    got = pick(topology, here, count, THIN)
    cores = topology.grouped(here, by_core)
    assert touched(topology, got, by_core) == min(count, len(cores))
    free_cores = [core for core, cpus in cores.items() if cpus == topology.cores[core]]
    assert len({*free_cores} & {topology.cpus[each].core for each in got}) == min(
        count, len(free_cores)
    )


@pytest.mark.parametrize("seed", range(150))
def test_a_spread_has_as_many_nodes_as_the_hint_where_they_can_give(seed: int) -> None:
    rng, topology, free = partly_used(seed)
    count = rng.randint(1, len(free))
    nodes = rng.randint(1, len(topology.nodes))
    options = PickOptions(1, by_socket=rng.random() < 0.5)
    got = pick(topology, free, count, options, nodes)
    assert (len(got), got <= free) == (count, True)
    givers = len(topology.grouped(free, by_numa))
    assert touched(topology, got, by_numa) >= min(nodes, count, givers)
