"""Sets of NUMA nodes, all of them at once. Pure.

A set is a number: bit *i* stands for the *i*-th node. With the 8 nodes of a large machine there are
255 of them, and each container is checked against each; so the answers for all are computed in one
go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations


@cache
def subsets(count: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Every non-empty subset of ``count`` nodes, with their places: narrow first, then by place."""
    return tuple(
        (sum(1 << place for place in some), some)
        for width in range(1, count + 1)
        for some in combinations(range(count), width)
    )


def sums(amounts: Iterable[int]) -> list[int]:
    """The total of the nodes of each set; ``amounts``: of each node."""
    found = [0]
    for amount in amounts:
        found += [each + amount for each in found]
    return found


def masks(nodes: Iterable[int]) -> list[int]:
    """Each set as a bit mask of node ids."""
    return sums(1 << node for node in nodes)


def touching(counts: Mapping[int, int], nodes: Sequence[int]) -> list[int]:
    """For each set, how many things are near any of its nodes.

    Args:
        counts: how many are near which nodes, by bit mask of node ids.
    """
    place = {1 << node: 1 << index for index, node in enumerate(nodes)}
    within = [0] * (1 << len(nodes))
    for mask, count in counts.items():
        within[sum(bit for node, bit in place.items() if mask & node)] += count
    within[0] = 0
    for bit in place.values():
        for each in range(len(within)):
            if each & bit:
                within[each] += within[each ^ bit]
    everything = len(within) - 1
    return [within[everything] - within[everything ^ each] for each in range(len(within))]
