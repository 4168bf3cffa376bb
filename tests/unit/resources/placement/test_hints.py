"""The merge of hints: tables, and random hints compared with a search of all combinations."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from kubeletpy.resources.placement.model import (
    ANY,
    NOT_PREFERRED,
    Hint,
    Hints,
    MergedHints,
    Policy,
    mask_of,
    masks,
    merge,
    nodes_of,
    subsets,
    sums,
    touching,
)

P, N = True, False
BEST, STRICT, SINGLE = Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE


def hints(*supplied: tuple[int | None, bool]) -> list[Hint]:
    return [Hint(mask, preferred) for mask, preferred in supplied]


@pytest.mark.parametrize(
    ("provided", "policy", "hint", "admitted"),
    [
        # no provider has a preference
        ([], BEST, Hint(0b11, P), True),
        ([{}], STRICT, Hint(0b11, P), True),
        ([], SINGLE, Hint(None, P), True),
        ([{"cpu": None}], STRICT, Hint(0b11, P), True),
        # impossible
        ([{"cpu": []}], BEST, Hint(0b11, N), True),
        ([{"cpu": []}], STRICT, Hint(0b11, N), False),
        # one provider
        ([{"cpu": hints((0b01, P), (0b10, P), (0b11, N))}], STRICT, Hint(0b01, P), True),
        ([{"cpu": hints((0b10, P), (0b11, N))}], SINGLE, Hint(0b10, P), True),
        ([{"cpu": hints((0b11, P))}], STRICT, Hint(0b11, P), True),
        ([{"cpu": hints((0b11, P))}], SINGLE, Hint(None, N), False),
        # two that agree, or not
        (
            [{"cpu": hints((0b01, P), (0b10, P), (0b11, N))}, {"gpu": hints((0b10, P), (0b11, N))}],
            STRICT,
            Hint(0b10, P),
            True,
        ),
        ([{"cpu": hints((0b01, P))}, {"gpu": hints((0b10, P))}], STRICT, Hint(0b11, N), False),
        ([{"cpu": hints((0b01, P))}, {"gpu": hints((0b10, P))}], BEST, Hint(0b11, N), True),
        (
            [{"cpu": hints((0b01, P), (0b11, N))}, {"gpu": hints((0b10, P), (0b11, N))}],
            BEST,
            Hint(0b01, N),
            True,
        ),
        # only best-effort admits without a preferred hint
        (
            [{"cpu": hints((0b01, P), (0b11, N))}, {"gpu": hints((0b10, P), (0b11, N))}],
            STRICT,
            Hint(0b11, N),
            False,
        ),
        ([{"cpu": hints((0b01, N))}], SINGLE, Hint(None, N), False),
        # nodes that the machine does not have
        ([{"cpu": hints((0b100, P))}], STRICT, Hint(0b11, N), False),
        # the provider with the largest minimum decides the width
        (
            [{"cpu": hints((0b11, P))}, {"gpu": hints((0b01, P), (0b11, N))}],
            BEST,
            Hint(0b11, N),
            True,
        ),
    ],
)
def test_two_nodes(provided: list[Hints], policy: Policy, hint: Hint, admitted: bool) -> None:
    merged = merge(provided, (0, 1), policy)
    assert (merged.hint, merged.admitted) == (hint, admitted)


def test_wider_than_needed_but_no_wider_than_it_must_be() -> None:
    provided: list[Hints] = [
        {"cpu": hints((0b00001, P), (0b11100, N), (0b01100, N))},
        {"gpu": hints((0b00010, P), (0b11100, N), (0b01100, N))},
    ]
    assert merge(provided, range(5), BEST).hint == Hint(0b01100, N)


def test_a_merge_names_the_resources_that_prevent_it() -> None:
    merged = merge(
        [{"cpu": hints((0b01, P))}, {"memory": None}, {"gpu": hints((0b10, P))}], (0, 1), STRICT
    )
    assert merged.against == ("cpu", "gpu")
    merged = merge([{"cpu": hints((0b01, P))}, {"gpu": []}], (0, 1), STRICT)
    assert merged.against == ("gpu",)
    # no single one of the three would resolve it
    apart = [{"cpu": hints((0b001, P))}, {"gpu": hints((0b010, P))}, {"nic": hints((0b100, P))}]
    assert merge(apart, (0, 1, 2), STRICT).against == ("cpu", "gpu", "nic")
    assert merge([{"cpu": None}], (0, 1), STRICT).against == ()


def test_closest_nodes() -> None:
    distances = {0: (10, 21, 11), 1: (21, 10, 21), 2: (11, 21, 10)}
    provided: list[Hints] = [{"cpu": hints((0b011, P), (0b101, P), (0b110, P))}]
    assert merge(provided, (0, 1, 2), STRICT).hint.mask == 0b011
    assert merge(provided, (0, 1, 2), STRICT, distances).hint.mask == 0b101


def test_masks() -> None:
    assert nodes_of(mask_of((3, 0))) == (0, 3)
    assert mask_of(()) == 0
    assert nodes_of(0) == ()


def by_combinations(provided: Sequence[Hints], nodes: Sequence[int], policy: Policy) -> MergedHints:
    """The rules of the table, applied literally."""
    every = mask_of(nodes)
    resources: list[Sequence[Hint]] = []
    for of_provider in provided:
        for supplied in of_provider.values():
            resources.append((ANY,) if supplied is None else supplied or (NOT_PREFERRED,))
    if policy is SINGLE:
        resources = [
            [h for h in supplied if h.preferred and (h.mask is None or h.mask.bit_count() == 1)]
            for supplied in resources
        ]
    smallest = [
        min(h.mask.bit_count() for h in supplied if h.mask is not None)
        for supplied in resources
        if any(h.mask is not None for h in supplied)
    ]
    desired = max(smallest, default=0)
    best: Hint | None = None
    for combination in itertools.product(*resources):
        masks = [h.mask for h in combination if h.mask is not None]
        mask = every
        for each in masks:
            mask &= each
        if not mask:
            continue
        preferred = all(h.preferred for h in combination) and len(set(masks)) <= 1
        candidate = Hint(mask, preferred)
        if best is None or _better(candidate, best, desired):
            best = candidate
    best = best or Hint(every, False)
    if policy is SINGLE and best.mask == every:
        best = Hint(None, best.preferred)
    return MergedHints(best, policy is BEST or best.preferred)


def _better(a: Hint, b: Hint, desired: int) -> bool:
    assert a.mask is not None
    assert b.mask is not None
    if a.preferred != b.preferred:
        return a.preferred
    narrower = (a.mask.bit_count(), a.mask) < (b.mask.bit_count(), b.mask)
    wide_a, wide_b = a.mask.bit_count(), b.mask.bit_count()
    if a.preferred or wide_a == wide_b or wide_b > desired:
        return narrower
    if wide_a > desired:
        return False
    return wide_a > wide_b


@pytest.mark.parametrize("seed", range(300))
def test_a_merge_equals_a_search_of_all_combinations(seed: int) -> None:
    rng = random.Random(seed)
    nodes = tuple(range(rng.choice((1, 2, 3, 4))))
    every = mask_of(nodes)

    def resource() -> Sequence[Hint] | None:
        if rng.random() < 0.15:
            return None
        return [
            Hint(rng.randint(1, every), rng.random() < 0.5) for _ in range(rng.choice((0, 1, 2, 5)))
        ]

    provided = [{f"r{i}": resource()} for i in range(rng.choice((1, 2, 3, 4)))]
    for policy in (BEST, STRICT, SINGLE):
        merged = merge(provided, nodes, policy)
        oracle = by_combinations(provided, nodes, policy)
        assert merged.admitted == oracle.admitted
        if oracle.hint.preferred or policy is BEST:
            assert merged.hint == oracle.hint


# Values for all sets of nodes at once equal those computed for one set after another.


@pytest.mark.parametrize("seed", range(20))
def test_against_one_after_another(seed: int) -> None:
    rng = random.Random(seed)
    nodes = sorted(rng.sample(range(10), rng.randint(1, 6)))
    amounts = [rng.randint(0, 9) for _ in nodes]
    things = [frozenset(rng.sample(range(10), rng.randint(0, 3))) for _ in range(12)]
    near = touching(Counter(mask_of(at) for at in things), nodes)
    as_mask, together = masks(nodes), sums(amounts)
    every = subsets(len(nodes))
    assert sorted(index for index, _ in every) == list(range(1, 1 << len(nodes)))
    assert [len(places) for _, places in every] == sorted(len(places) for _, places in every)
    for index, places in every:
        some = {nodes[place] for place in places}
        assert as_mask[index] == mask_of(some)
        assert together[index] == sum(amounts[place] for place in places)
        assert near[index] == sum(1 for at in things if at & some)
