"""Positions of pulls in the queue."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.images.policy import PullPosition
from kubeletpy.images.uses import PullQueue, Ticket
from tests.kit.virtual_time import on_virtual_time


async def pull(queue: PullQueue, ticket: Ticket, after: float, seconds: float) -> None:
    await asyncio.sleep(after)
    async with queue.slot(ticket):
        await asyncio.sleep(seconds)


def standings(queue: PullQueue) -> list[tuple[str, PullPosition]]:
    return [(ticket.what, position) for ticket, position in queue.positions()]


@pytest.mark.parametrize("limit", [1, 2, None])
@on_virtual_time
async def test_in_order_of_arrival(limit: int | None) -> None:
    queue = PullQueue(parallel=limit, qps=0, burst=1)
    began = asyncio.get_running_loop().time()
    a, b, again = Ticket("u", "a"), Ticket("u", "b"), Ticket("u", "a")
    tasks = [
        asyncio.create_task(pull(queue, ticket, after, 10))
        for after, ticket in ((0, a), (1, b), (2, again))
    ]
    await asyncio.sleep(3)
    number = min(limit or 3, 3)
    at = [began, began + 1, began + 2]
    assert standings(queue) == [
        *(
            (what, PullPosition(at[n], None, number, limit))
            for n, what in enumerate("aba"[:number])
        ),
        *(
            (what, PullPosition(at[number + n], n, number, limit))
            for n, what in enumerate("aba"[number:])
        ),
    ]
    if limit == 1:
        await asyncio.sleep(8)
        assert standings(queue) == [
            ("b", PullPosition(began + 10, None, 1, 1)),
            ("a", PullPosition(began + 2, 0, 1, 1)),
        ]
        tasks[2].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [what for what, _ in standings(queue)] == ["b"], "who gives up waits no more"
    await asyncio.gather(*tasks, return_exceptions=True)
    assert standings(queue) == []
