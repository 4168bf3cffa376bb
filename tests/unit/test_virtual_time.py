"""The event loop of virtual time."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.kit.virtual_time import Deadlock, run, timed

pytestmark = pytest.mark.virtual_time


async def test_an_hour_takes_no_time() -> None:
    _, took = await timed(asyncio.sleep(3600))
    assert took == pytest.approx(3600)


async def test_timers_fire_in_order() -> None:
    seen: list[int] = []

    async def note(after: int) -> None:
        await asyncio.sleep(after)
        seen.append(after)

    await asyncio.gather(*(note(n) for n in (5, 1, 3)))
    assert seen == [1, 3, 5]


async def test_threads_take_no_virtual_time() -> None:
    _, took = await timed(asyncio.to_thread(time.sleep, 0.02))
    assert took == 0


def test_deadlock_is_an_error() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(stuck())
