"""The one timer of all probes, and the slots they run in."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeletpy.probes.probe_manager import HOLD_S, SLOT_S, ProbeSlots, Timetable
from tests.virtual_time import on_virtual_time


@on_virtual_time
async def test_everything_comes_in_time_and_in_order() -> None:
    loop, came = asyncio.get_running_loop(), list[tuple[float, float]]()
    table: Timetable[float] = Timetable(lambda at: came.append((at, loop.time())))
    rng = random.Random(3)
    for _ in range(500):
        at = rng.uniform(0, 60)
        table.add(at, at)
    await asyncio.sleep(61)
    assert [at for at, _ in came] == sorted(at for at, _ in came)
    assert len(came) == 500
    assert all(at <= now <= at + SLOT_S * 1.01 for at, now in came)
    assert len(table) == 0


@on_virtual_time
async def test_withdrawn_entries_never_come_due_and_are_freed() -> None:
    came: list[int] = []
    table: Timetable[int] = Timetable(came.append)
    kept = [table.add(10 + n / 100, n) for n in range(10)]
    for n in range(5000):
        entry = table.add(100, n)
        table.cancel(entry)
        table.cancel(entry)
    assert len(table) == 10
    assert len(table._heap) < 200
    table.cancel(kept[3])
    await asyncio.sleep(200)
    assert came == [n for n in range(10) if n != 3]
    assert len(table) == 0


@on_virtual_time
async def test_an_earlier_one_moves_the_timer() -> None:
    came: list[str] = []
    table: Timetable[str] = Timetable(came.append)
    table.add(50, "late")
    table.add(1, "early")
    await asyncio.sleep(2)
    assert came == ["early"]


@on_virtual_time
async def test_nothing_comes_after_the_close_and_entries_may_still_be_taken_back() -> None:
    came: list[int] = []
    table: Timetable[int] = Timetable(came.append)
    entries = [table.add(1, n) for n in range(100)]
    table.close()
    for entry in entries:
        table.cancel(entry)
    await asyncio.sleep(5)
    assert came == []


@on_virtual_time
async def test_a_slot_is_freed_once_by_release_or_timeout() -> None:
    turns, started = ProbeSlots(1), list[str]()
    releases = []

    def starter(name: str, takes: bool = True) -> None:
        def start() -> bool:
            if takes:
                started.append(name)
                releases.append(turns.acquire())
            return takes

        turns.start_when_free(start)

    for name in "abc":
        starter(name)
    starter("no", takes=False)
    starter("d")
    assert (started, turns.waiting) == (["a"], 4)
    releases[0]()
    releases[0]()
    assert started == ["a", "b"]
    await asyncio.sleep(HOLD_S + 0.01)
    assert started == ["a", "b", "c"]
    releases[1]()
    assert started == ["a", "b", "c"]
    releases[2]()
    assert started == ["a", "b", "c", "d"]
    assert turns.waiting == 0
    await asyncio.sleep(HOLD_S + 0.01)
    assert turns._free == pytest.approx(1)
