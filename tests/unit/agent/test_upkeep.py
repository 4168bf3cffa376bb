"""When dead containers are collected, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kubeletpy.agent.upkeep import CONTAINERS_PERIOD_S, SOON_S, Upkeep
from kubeletpy.remote.errors import Internal
from tests.virtual_time import on_virtual_time


class Rounds:
    """Notes when it was asked to collect; a round takes a second."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.during: Callable[[], None] = lambda: None

    async def collect_garbage(self, **_: Any) -> None:
        self.at.append(asyncio.get_running_loop().time())
        self.during()
        await asyncio.sleep(1)


def upkeep(rounds: Rounds) -> Upkeep:
    return Upkeep(
        rounds,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        node_name="n",
        all_sources_ready=lambda: True,
        removable=lambda uid: True,
    )


@on_virtual_time
async def test_soon_after_the_start_and_then_by_the_period() -> None:
    rounds = Rounds()
    task = asyncio.create_task(upkeep(rounds).collect_containers())
    await asyncio.sleep(SOON_S + 1 + CONTAINERS_PERIOD_S + 0.5)
    assert rounds.at == [SOON_S, SOON_S + 1 + CONTAINERS_PERIOD_S]
    task.cancel()


@on_virtual_time
async def test_ended_pods_are_one_round_soon_also_those_of_a_round_under_way() -> None:
    rounds = Rounds()
    of = upkeep(rounds)
    task = asyncio.create_task(of.collect_containers())
    await asyncio.sleep(SOON_S + 2)
    of.collect_soon()
    await asyncio.sleep(1)
    of.collect_soon()

    def one_ends() -> None:
        of.collect_soon()
        rounds.during = lambda: None

    rounds.during = one_ends
    await asyncio.sleep(20)
    assert rounds.at == [SOON_S, 2 * SOON_S + 2, 3 * SOON_S + 3]
    task.cancel()


@pytest.mark.parametrize(("left", "cleared"), [(False, True), (True, False), (None, False)])
@on_virtual_time
async def test_whether_a_pod_has_left_something(left: bool | None, cleared: bool) -> None:
    rounds = Rounds()

    async def has_containers(uid: str) -> bool:
        assert uid == "u"
        if left is None:
            raise Internal("ListContainers", "down")
        return left

    rounds.has_containers = has_containers  # type: ignore[attr-defined]
    assert await upkeep(rounds).cleared("u") is cleared
    assert rounds.at == [0]
