"""Huge pages are left out of available memory while their gate is on."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.config.load import default_settings
from kubeletpy.node.stats.collector import withheld_huge_pages
from tests.kit.machines import FACTS


@pytest.mark.parametrize(
    ("pages", "bytes_"),
    [({}, 0), ({2 << 20: 8 << 20}, 8 << 20), ({2 << 20: 8 << 20, 1 << 30: 2 << 30}, 2056 << 20)],
)
def test_the_pages_of_every_size_count(pages: dict[int, int], bytes_: int) -> None:
    settings = default_settings()
    facts = replace(FACTS, huge_pages=pages)
    assert withheld_huge_pages(settings, facts) == bytes_
    gates = settings.feature_gates
    off = replace(gates, effective={**gates.effective, "HugepageAwareEviction": False})
    assert withheld_huge_pages(replace(settings, feature_gates=off), facts) == 0
