"""Which NUMA nodes suit all providers of a container at once. Pure.

Source: docs/reference/behaviour-resources.md, rt. The merged hint is that of the best combination
of one hint per resource. Combinations are never enumerated: with eight nodes and three resources
there are sixteen million of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import reduce

from kubeletpy.base.structs import Struct

MAX_NODES = 8
"""With more nodes the kubelet does not start, unless max-allowable-numa-nodes allows it."""


class Policy(StrEnum):
    """topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Hint(Struct, frozen=True):
    """NUMA nodes from which a resource can be allocated.

    Attributes:
        mask: a bit for each node id; None: any nodes will do.
        preferred: no smaller set of nodes could ever satisfy the request.
    """

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""Hints of one provider, by resource; None for no preference, empty for impossible."""

ANY = Hint(None, True)
NOT_TO_BE_HAD = Hint(None, False)


class MergedHints(Struct, frozen=True):
    """The result of merging all hints.

    Attributes:
        hint: the hint by which providers allocate.
        admitted: whether the policy admits the pod.
        against: resources that kept the hint from being preferred, for people.
    """

    hint: Hint
    admitted: bool
    against: tuple[str, ...] = ()


def mask_of(nodes: Iterable[int]) -> int:
    """A bit for each node id."""
    return reduce(lambda mask, node: mask | 1 << node, nodes, 0)


def nodes_of(mask: int) -> tuple[int, ...]:
    """The node ids of a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


Distances = Mapping[int, Sequence[int]]
"""Node id -> its distance to each node, in the order of ascending ids."""


def merge(
    provided: Sequence[Hints],
    nodes: Sequence[int],
    policy: Policy,
    closest: Distances | None = None,
) -> MergedHints:
    """The nodes for one container, or for one pod.

    Args:
        provided: the hints of each provider.
        nodes: ids of all NUMA nodes of the machine.
        policy: not NONE, under which no provider is called.
        closest: set with the option prefer-closest-numa-nodes.
    """
    every = mask_of(nodes)
    resources = _resources(provided)
    if policy is Policy.SINGLE_NUMA_NODE:
        resources = {name: _single(hints) for name, hints in resources.items()}
    rank = _rank(closest)
    preferred = _preferred_masks(list(resources.values()), every)
    if preferred:
        best = Hint(min(preferred, key=rank), True)
    elif policy is Policy.BEST_EFFORT:
        best = Hint(_nearest(list(resources.values()), every, rank), False)
    else:
        best = Hint(every, False)
    if policy is Policy.SINGLE_NUMA_NODE and best.mask == every:
        best = Hint(None, best.preferred)
    admitted = policy is Policy.BEST_EFFORT or best.preferred
    return MergedHints(best, admitted, () if best.preferred else _against(resources, every))


def _resources(provided: Sequence[Hints]) -> dict[str, Sequence[Hint]]:
    """The hints of each resource, with no preference and impossible made explicit."""
    found: dict[str, Sequence[Hint]] = {}
    for hints in provided:
        for resource, given in hints.items():
            if given is None:
                found[resource] = (ANY,)
            else:
                found[resource] = given or (NOT_TO_BE_HAD,)
    return found


def _single(hints: Sequence[Hint]) -> Sequence[Hint]:
    return [hint for hint in hints if hint.mask is None or hint.mask.bit_count() == 1]


def _preferred_masks(resources: Sequence[Sequence[Hint]], every: int) -> set[int]:
    """Masks of combinations in which all are preferred and all masks are the same."""
    common: set[int] = set()
    any_do = True
    for hints in resources:
        masks = {hint.mask & every for hint in hints if hint.preferred and hint.mask is not None}
        takes_any = ANY in hints
        common = common & masks | (common if takes_any else set()) | (masks if any_do else set())
        any_do = any_do and takes_any
    return (common | ({every} if any_do else set())) - {0}


def _nearest(resources: Sequence[Sequence[Hint]], every: int, rank: Rank) -> int:
    """The mask intersection whose width is closest to the need of the neediest resource."""
    reached = {every}
    for hints in resources:
        masks = {every if hint.mask is None else hint.mask & every for hint in hints}
        reached = {a & b for a in reached for b in masks} - {0}
    smallest = [
        min(widths)
        for hints in resources
        if (widths := [h.mask.bit_count() for h in hints if h.mask is not None])
    ]
    wanted = max(smallest, default=every.bit_count())

    def key(mask: int) -> tuple[bool, int, tuple[float, ...]]:
        width = mask.bit_count()
        return width > wanted, width if width > wanted else wanted - width, rank(mask)

    return min(reached, key=key, default=every)


def _against(resources: Mapping[str, Sequence[Hint]], every: int) -> tuple[str, ...]:
    """Resources without which the rest would have a preferred hint; all, if no single one is."""
    found = tuple(
        name
        for name in resources
        if _preferred_masks([hints for other, hints in resources.items() if other != name], every)
    )
    return found or tuple(resources)


Rank = Callable[[int], tuple[float, ...]]


def _rank(closest: Distances | None) -> Rank:
    """Narrower is better; then closer together, if requested; then lower ids."""

    def rank(mask: int) -> tuple[float, ...]:
        if closest is None:
            return mask.bit_count(), mask
        return mask.bit_count(), _distance(mask, closest), mask

    return rank


def _distance(mask: int, closest: Distances) -> int:
    """The total distance between all pairs of nodes: for equal counts, it ranks like the mean."""
    nodes = nodes_of(mask)
    order = sorted(closest)
    return sum(closest[a][order.index(b)] for a in nodes for b in nodes)
