"""Usage left below limits, and one reading filled from another."""

from __future__ import annotations

import pytest

from kubeletpy.node.stats.usage import DeviceIo, GroupStats, filled

FIRST, SECOND = DeviceIo(8, 0, 1), DeviceIo(8, 16, 2)


@pytest.mark.parametrize(
    ("available", "limit", "used", "left"),
    [
        (None, None, 3, None),
        (None, 5, None, None),
        (None, 5, 3, 2),
        (None, 5, 5, 0),
        (None, 5, 7, 0),
        (9, 5, 3, 9),
        (0, 5, 3, 0),
        (9, None, None, 9),
    ],
)
def test_memory_available(
    available: int | None, limit: int | None, used: int | None, left: int | None
) -> None:
    stats = GroupStats(available=available, limit=limit, working_set=used)
    assert stats.memory_available == left


@pytest.mark.parametrize(
    ("limit", "used", "left"), [(None, 3, None), (5, None, None), (5, 3, 2), (5, 5, 0), (5, 7, 0)]
)
def test_swap_available(limit: int | None, used: int | None, left: int | None) -> None:
    assert GroupStats(swap_limit=limit, swap=used).swap_available == left


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, None),
        (None, GroupStats(at=1), GroupStats(at=1)),
        (GroupStats(at=1), None, GroupStats(at=1)),
        (GroupStats(at=1), GroupStats(at=2, pids=3), GroupStats(at=1, pids=3)),
        (GroupStats(at=1, pids=0), GroupStats(at=2, pids=3), GroupStats(at=1, pids=0)),
        (GroupStats(at=1, pids=4), GroupStats(at=2), GroupStats(at=1, pids=4)),
        (GroupStats(), GroupStats(devices=(SECOND,)), GroupStats(devices=(SECOND,))),
        (
            GroupStats(devices=(FIRST,)),
            GroupStats(devices=(SECOND,)),
            GroupStats(devices=(FIRST,)),
        ),
        (GroupStats(devices=(FIRST,)), GroupStats(), GroupStats(devices=(FIRST,))),
        (
            GroupStats(limit=9, working_set=3),
            GroupStats(available=5),
            GroupStats(limit=9, working_set=3),
        ),
        (
            GroupStats(working_set=3),
            GroupStats(available=5),
            GroupStats(working_set=3, available=5),
        ),
    ],
)
def test_filled(
    first: GroupStats | None, second: GroupStats | None, expected: GroupStats | None
) -> None:
    assert filled(first, second) == expected


def test_complete_stats_are_returned_as_they_are() -> None:
    first = GroupStats(at=1, pids=4)
    assert filled(first, GroupStats(at=2)) is first
