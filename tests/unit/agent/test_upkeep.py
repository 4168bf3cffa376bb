"""When dead containers are collected, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kubeletpy.agent.eviction import CONTAINERS_PERIOD_S, SOON_S, Upkeep
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.remote.errors import Internal
from tests.kit.traces import Recording

pytestmark = pytest.mark.virtual_time

PODS = ("runs", "ended", "reported")


class Rounds:
    """Records when garbage collection was requested; a round takes a second."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.during: Callable[[], None] = lambda: None
        self.requested: dict[str, tuple[bool, bool]] = {}
        """Answers about each of PODS: (removable, reported)."""
        self.removed = 0

    async def collect(
        self, *, removable: Callable[[str], bool], reported: Callable[[str], bool], **_: Any
    ) -> int:
        self.at.append(asyncio.get_running_loop().time())
        self.requested = {uid: (removable(uid), reported(uid)) for uid in PODS}
        self.during()
        await asyncio.sleep(1)
        return self.removed


def upkeep(rounds: Rounds, tracer: Tracer = NO_TRACER) -> Upkeep:
    return Upkeep(
        rounds,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        node_name="n",
        all_sources_ready=lambda: True,
        removable=lambda uid: True,
        tracer=tracer,
    )


async def test_soon_after_the_start_and_then_by_the_period() -> None:
    rounds = Rounds()
    task = asyncio.create_task(upkeep(rounds).collect_containers())
    await asyncio.sleep(SOON_S + 1 + CONTAINERS_PERIOD_S + 0.5)
    assert rounds.at == [SOON_S, SOON_S + 1 + CONTAINERS_PERIOD_S]
    task.cancel()


async def test_rounds_are_spans_with_the_kubelets_name() -> None:
    tracer, rounds = Recording(), Rounds()
    kept = upkeep(rounds, tracer)
    task = asyncio.create_task(kept.collect_containers())
    await asyncio.sleep(SOON_S + 2)
    await kept.reclaim(Reclaim.CONTAINERS)
    task.cancel()
    assert [(each.name, each.ended) for each in tracer.spans] == [
        ("Containers/GarbageCollect", True),
        ("Containers/GarbageCollect", True),
    ]


async def test_pods_that_end_during_a_round_share_the_next_one() -> None:
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
async def test_whether_a_pod_has_left_something(left: bool | None, cleared: bool) -> None:
    rounds = Rounds()

    async def has_containers(uid: str) -> bool:
        assert uid == "u"
        if left is None:
            raise Internal("ListContainers", "down")
        return left

    rounds.has_containers = has_containers  # type: ignore[attr-defined]
    assert await upkeep(rounds).clear("u", unreported=False) is cleared
    assert rounds.at == [0]


def under_pressure(rounds: Rounds) -> Upkeep:
    """One pod runs and two have ended; the API has the status of one of the ended pods."""
    return Upkeep(
        rounds,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        node_name="n",
        all_sources_ready=lambda: True,
        removable=lambda uid: False,
        reported=lambda uid: uid == "reported",
        ended=lambda uid: uid != "runs",
    )


@pytest.mark.parametrize("removed", [0, 2])
async def test_removing_dead_containers_reclaims_layers(removed: int) -> None:
    rounds = Rounds()
    rounds.removed = removed
    assert await under_pressure(rounds).reclaim(Reclaim.CONTAINERS) is (removed > 0)
    assert rounds.requested == {
        "runs": (False, False),
        "ended": (False, False),
        "reported": (True, True),
    }


@pytest.mark.parametrize("unreported", [False, True])
async def test_only_one_pod_loses_unreported_containers(unreported: bool) -> None:
    rounds = Rounds()

    async def has_containers(uid: str) -> bool:
        return False

    rounds.has_containers = has_containers  # type: ignore[attr-defined]
    assert await under_pressure(rounds).clear("ended", unreported=unreported)
    assert rounds.requested["ended"] == (unreported, unreported)
    assert rounds.requested["reported"] == (True, True)
    assert rounds.requested["runs"] == (False, False)
