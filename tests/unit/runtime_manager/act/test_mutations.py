"""Changes of the runtime: finished, awaited, and forgotten with their results."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from kubeletpy.base.tasks import Backlog
from kubeletpy.runtime_manager.act.mutations import (
    STOP_AT_MOST_S,
    STOP_WAITS_AT_MOST_S,
    Mutations,
    StartKind,
    StartSlots,
    StopKind,
    StopSlots,
)
from tests.kit.costs import no_collections

pytestmark = pytest.mark.virtual_time


class Refused(Exception):
    """The runtime refused the change."""


async def test_a_change_continues_without_its_caller() -> None:
    mutations, made = Mutations(lambda: 7), asyncio.Event()

    async def change() -> None:
        await asyncio.sleep(5)
        made.set()

    caller = asyncio.create_task(mutations.finish("u", change()))
    await asyncio.sleep(1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not made.is_set()
    await mutations.settled("u")
    assert made.is_set()
    assert (mutations.outdated("u", 6), mutations.outdated("u", 7)) == (True, False)


async def test_a_failure_is_freed_with_its_last_reference() -> None:
    """Otherwise each failed start would keep its pod in memory until a full garbage collection."""

    async def change() -> None:
        raise Refused

    with no_collections():
        mutations = Mutations(lambda: 0)
        try:
            await mutations.finish("u", change())
        except Refused as error:
            left = weakref.ref(error)
        await mutations.settled("u")
        await asyncio.sleep(0)
        assert left() is None


# Start slots: the limit, the order, and the state after a cancellation.


async def test_containers_first_and_sandboxes_never_take_all() -> None:
    slots = StartSlots(3, Backlog())
    order: list[str] = []

    async def make(name: str, kind: StartKind) -> None:
        async with slots.slot(kind):
            order.append(name)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(make(f"s{n}", StartKind.SANDBOX))
        await asyncio.sleep(0.5)
        assert order == ["s0", "s1"]
        for n in range(4):
            group.create_task(make(f"c{n}", StartKind.CONTAINER))
    assert order == ["s0", "s1", "c0", "c1", "c2", "c3", "s2", "s3"]


async def test_cancellation_loses_no_slot() -> None:
    slots = StartSlots(1, Backlog())

    async def make(seconds: float) -> None:
        async with slots.slot(StartKind.CONTAINER):
            await asyncio.sleep(seconds)

    tasks = [asyncio.create_task(make(10)) for _ in range(4)]
    await asyncio.sleep(1)
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.sleep(0)  # the slot is given to the third, which is canceled before it wakes
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, True, True, False]
    async with asyncio.timeout(1), slots.slot(StartKind.SANDBOX):
        pass


async def test_stops_in_progress_finish_before_others_begin() -> None:
    slots, order = StopSlots(3, Backlog()), list[str]()

    async def stop(name: str) -> None:
        async with slots.slot(StopKind.CONTAINER):
            await asyncio.sleep(1)
        async with slots.slot(StopKind.SANDBOX):
            order.append(name)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(stop(str(n)))
        await asyncio.sleep(1.5)
        assert order == ["0", "1"], "the first are on their way before the others have begun"
    assert order == ["0", "1", "2", "3", "4", "5"]


async def test_a_slow_stop_does_not_delay_others_for_long() -> None:
    slots, begun = StopSlots(8, Backlog()), list[float]()
    loop = asyncio.get_running_loop()

    async def stop_deaf() -> None:
        async with slots.slot(StopKind.CONTAINER, STOP_AT_MOST_S[StopKind.CONTAINER]):
            begun.append(loop.time())
            await asyncio.sleep(30)

    async with asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(stop_deaf())
    assert len(begun) == 60
    assert max(begun) == pytest.approx(1.1, abs=0.05)
    assert slots._held == [0, 0], "a slot is released once"
    async with slots.slot(StopKind.CONTAINER, 1.0):
        assert slots._held == [0, 1]
    await asyncio.sleep(2)
    assert slots._held == [0, 0]


async def stop_deaf(slots: StopSlots, begun: list[float]) -> None:
    """Stop a container that takes its complete grace period."""
    kind = StopKind.CONTAINER
    async with slots.slot(kind, STOP_AT_MOST_S[kind], STOP_WAITS_AT_MOST_S):
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(30)


async def test_waits_are_short_however_many_stops_are_slow() -> None:
    slots, begun = StopSlots(8, Backlog()), list[float]()
    async with asyncio.TaskGroup() as group:
        for _ in range(330):
            group.create_task(stop_deaf(slots, begun))
        await asyncio.sleep(STOP_WAITS_AT_MOST_S - 0.1)
        assert len(begun) < 110
    assert len(begun) == 330
    assert max(begun) - min(begun) == pytest.approx(STOP_WAITS_AT_MOST_S)
    assert slots._held == [0, 0], "who had no place gives none back"


async def test_no_stop_waits_while_the_machine_shuts_down() -> None:
    slots, begun = StopSlots(1, Backlog()), list[float]()
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(stop_deaf(slots, begun))
        await asyncio.sleep(0.05)
        assert len(begun) == 1
        slots.hurry(True)
        await asyncio.sleep(0)
        assert len(begun) == 10, "those that waited"
        for _ in range(10):
            group.create_task(stop_deaf(slots, begun))
        await asyncio.sleep(0)
        assert len(begun) == 20, "and those that come"
        slots.hurry(False)
        group.create_task(stop_deaf(slots, begun))
        await asyncio.sleep(0.02)
        assert len(begun) == 20
    assert slots._held == [0, 0]


def test_one_slot_is_the_least() -> None:
    with pytest.raises(ValueError, match="at least one"):
        StartSlots(0, Backlog())


async def test_a_slot_without_waiters_leaves_nothing_behind() -> None:
    slots = StopSlots(2, Backlog())
    async with slots.slot(StopKind.CONTAINER, 60, 60):
        pass
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert [timer for timer in timers if not timer.cancelled()] == []


async def test_who_waits_for_a_slot_is_counted() -> None:
    backlog, loop = Backlog(), asyncio.get_running_loop()
    starts, stops = StartSlots(1, backlog), StopSlots(1, backlog)

    async def use(slots: StartSlots | StopSlots, kind: int) -> None:
        async with slots.slot(kind):
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(use(starts, StartKind.SANDBOX))
        group.create_task(use(stops, StopKind.CONTAINER))
        await asyncio.sleep(0)
        began = loop.time()
        await backlog.cleared(10)
        assert loop.time() - began == pytest.approx(2), "until the last one has its turn"
