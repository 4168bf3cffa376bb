"""Tables of a fleet run: request counts, limits and curves; API seats on virtual time."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET

import pytest

from bench.fleet.page import curves, group, picture
from bench.fleet.seats import Busy, Level, level_of, new_levels
from bench.fleet.tally import Phase, Rates, Row, by_kind, codes, lockstep, per_second, rates
from tests.virtual_time import on_virtual_time

ROWS: list[Row] = [
    (9, "patch", "leases", 200, 7),
    (10, "patch", "leases", 200, 3),
    (10, "list", "pods", 429, 1),
    (11, "patch", "leases", 0, 5),
    (12, "patch", "leases", 404, 1),
    (13, "patch", "leases", 200, 9),
]
PHASE = Phase("p", 10, 13)


def test_only_requests_that_arrived_in_a_phase_are_counted() -> None:
    assert per_second(ROWS, PHASE) == [4, 0, 1]
    assert per_second(ROWS, PHASE, arrived=False) == [0, 5, 0]
    assert codes(ROWS, PHASE) == {200: 3, 429: 1, 0: 5, 404: 1}
    kinds = by_kind(ROWS, PHASE)
    assert list(kinds) == [("patch", "leases"), ("list", "pods")]
    assert kinds["patch", "leases"] == Rates(4 / 3, 3, 0, 4)
    assert rates([1, 5, 0, 5]) == Rates(11 / 4, 5, 1, 11)


def test_curves_hold_each_request_once() -> None:
    assert curves(ROWS, PHASE) == {"no answer": [0, 5, 0], "leases": [3, 0, 1], "LIST": [1, 0, 0]}


@pytest.mark.parametrize(
    ("verb", "resource", "code", "name"),
    [
        ("watch", "nodes", 200, "WATCH"),
        ("list", "configmaps", 200, "LIST"),
        ("get", "nodes", 200, "nodes"),
        ("patch", "nodes/status", 200, "nodes"),
        ("create", "serviceaccounts/token", 201, "tokens"),
        ("delete", "pods", 200, "others"),
        ("watch", "nodes", 0, "no answer"),
    ],
)
def test_groups_of_requests(verb: str, resource: str, code: int, name: str) -> None:
    assert group(verb, resource, code) == name


@pytest.mark.parametrize(
    ("renewals", "share"),
    [
        ({"a": [1.2, 11.3], "b": [1.9, 11.9]}, 1.0),
        ({"a": [1.2, 11.3], "b": [2.1, 12.2]}, 0.5),
        ({"a": [99.0], "b": [100.0]}, 0.0),
        ({}, 0.0),
    ],
)
def test_lockstep(renewals: dict[str, list[float]], share: float) -> None:
    assert lockstep(renewals, 0, 50) == share


def test_a_picture_has_all_requests_and_their_kinds() -> None:
    text = picture(ROWS[:3], PHASE)
    ET.fromstring(text)
    assert text.count("<polyline") == 1 + 2
    assert "requests per second" in text
    assert "without an answer" in picture(ROWS, PHASE)


@pytest.mark.parametrize(
    ("resource", "level"),
    [("leases", "node-high"), ("nodes/status", "node-high"), ("pods/status", "system")],
)
def test_levels(resource: str, level: str) -> None:
    assert level_of(resource) == level
    assert level in new_levels()


@on_virtual_time
async def test_requests_without_a_seat_queue_in_order_up_to_a_limit() -> None:
    level, log = Level(1, 2), []

    async def work(name: str, seconds: float) -> None:
        try:
            async with level.seat(name):
                log.append(name)
                await asyncio.sleep(seconds)
        except Busy:
            log.append(f"{name}: 429")

    async with asyncio.TaskGroup() as group_:
        for name, seconds in (("a", 5), ("b", 11), ("c", 0), ("d", 0)):
            group_.create_task(work(name, seconds))
            await asyncio.sleep(0)
    assert log == ["a", "d: 429", "b", "c: 429"], "the queue is full; 15 s are over"
    await work("e", 0)
    assert log[-1] == "e", "all seats were released"
    assert level.most_waiting == 2
