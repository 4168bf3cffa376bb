"""How much work all streams of an event loop may do in a turn, and which is next."""

from __future__ import annotations

import asyncio

from kubeletpy.base.wire.relay import SLICE_WORK, SLICES_A_TURN, StreamWork
from tests.unit.base.wire.turns_of import events_per_turn

A_TURN = SLICE_WORK * SLICES_A_TURN


async def test_a_stream_that_is_alone_does_not_wait_while_slices_are_left() -> None:
    work = StreamWork()
    assert not any(work.exceeds(0) for _ in range(A_TURN + SLICE_WORK - 1))
    assert work.exceeds(0)
    await work.next_slice()
    assert not any(work.exceeds(0) for _ in range(A_TURN - 1))


async def test_large_frames_are_more_work() -> None:
    work = StreamWork()
    assert not work.exceeds(A_TURN << 12)
    assert work.exceeds(SLICE_WORK << 12)


async def test_a_thousand_streams_together_do_what_fits_into_a_turn() -> None:
    async def stream() -> None:
        work = StreamWork()
        for _ in range(10 * SLICE_WORK):
            counted.count()
            await work.did(0)

    with events_per_turn() as counted:
        await asyncio.gather(*(stream() for _ in range(100)))
    assert counted.total == 1000 * SLICE_WORK
    # the first turn has the first slice of each stream: none has had to wait yet
    later = counted.turns[1:]
    assert max(later) <= A_TURN
    assert sorted(later)[len(later) // 2] == A_TURN, "and no turn is wasted"


async def test_streams_get_slices_in_turn() -> None:
    done = [0] * 20

    async def stream(number: int) -> None:
        work = StreamWork()
        while True:
            done[number] += 1
            await work.did(0)

    tasks = [asyncio.create_task(stream(number)) for number in range(20)]
    for _ in range(200):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert min(done) > 10 * SLICE_WORK
    assert max(done) - min(done) <= A_TURN + SLICE_WORK


async def test_a_stream_that_ends_while_it_waits_takes_nothing_from_others() -> None:
    def used_up() -> StreamWork:
        work = StreamWork()
        while not work.exceeds(0):
            pass
        return work

    waiting = [asyncio.create_task(used_up().next_slice()) for _ in range(10 * SLICES_A_TURN)]
    last = asyncio.create_task(used_up().next_slice())
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    async with asyncio.timeout(10):
        await last


async def test_a_callback_is_called_in_a_later_turn() -> None:
    work, called = StreamWork(), asyncio.Event()
    while not work.exceeds(0):
        pass
    work.resume_later(called.set)
    assert not called.is_set()
    async with asyncio.timeout(10):
        await called.wait()
