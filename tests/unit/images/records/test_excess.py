"""Intents whose pulls have ended without an image."""

from __future__ import annotations

import pytest

from kubeletpy.images.records.model import Intents


@pytest.mark.parametrize(
    ("limit", "arrived", "excess"),
    [
        (0, "", "abd"),
        (1, "", "ab"),
        (3, "", ""),
        (4, "", ""),
        (1, "a", "b"),
        (0, "abd", ""),
        (1, "d", "a"),
        (2, "c", "a"),
    ],
)
def test_the_oldest_beyond_a_limit(limit: int, arrived: str, excess: str) -> None:
    intents = Intents()
    for name in "abcd":
        intents.get_or_create(name).uncertain = True
    intents.get_or_create("c").pulls = 1
    assert "".join(name for name, _ in intents.excess(limit, arrived)) == excess
