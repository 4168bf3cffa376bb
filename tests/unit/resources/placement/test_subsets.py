"""Values for all sets of nodes at once equal those computed for one set after another."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kubeletpy.resources.placement.model import mask_of, masks, subsets, sums, touching


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
