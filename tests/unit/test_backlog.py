"""Work that waits until no pod waits for its turn."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.base.tasks import Backlog

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("turns", "at_most", "waited"),
    [
        ([], 10.0, 0.0),
        ([1.0, 3.0], 10.0, 3.0),
        ([3.0], 2.0, 2.0),
        ([3.0], 0.0, 0.0),
        ([3.0], -1.0, 0.0),
    ],
)
async def test_waits_until_no_pod_waits_for_a_bounded_time(
    turns: list[float], at_most: float, waited: float
) -> None:
    backlog, loop = Backlog(), asyncio.get_running_loop()

    async def wait_for_turn(seconds: float) -> None:
        with backlog.waiting():
            await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in turns:
            group.create_task(wait_for_turn(seconds))
        await asyncio.sleep(0)
        began = loop.time()
        await backlog.cleared(at_most)
        assert loop.time() - began == pytest.approx(waited)


async def test_a_canceled_wait_does_not_count() -> None:
    backlog = Backlog()

    async def wait_for_turn() -> None:
        with backlog.waiting():
            await asyncio.sleep(100)

    task = asyncio.create_task(wait_for_turn())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(0.1):
        await backlog.cleared(10)
