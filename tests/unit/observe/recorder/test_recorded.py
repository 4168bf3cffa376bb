"""Recordings of real nodes, in tests/recorded: this version decides as the recorded one did."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kubeletpy.observe.recorder.replay import replay

RECORDED = sorted((Path(__file__).parents[3] / "recorded").glob("*.jsonl.gz"))


def test_there_are_some() -> None:
    assert RECORDED


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name)
def test_it_is_decided_in_the_same_way(file: Path) -> None:
    with gzip.open(file) as lines:
        found = replay(lines)
    assert not found.problems
    assert found.decisions
    different = [moment for story in found.stories.values() for moment in story if moment.now]
    assert not different, different[0]
