"""Which evictions wait for a pod that is being ended, and until when, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kubeletpy.node.eviction.decide import Condition
from kubeletpy.node.eviction.endings import CLEANUP_S, STOPPING_S, Ending, Endings
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions
from tests.kit.pods import make_pod

pytestmark = pytest.mark.virtual_time

MEMORY, DISK, PIDS = Condition.MEMORY, Condition.DISK, Condition.PID


class Pods:
    """Kills that return after ``stops_s``; the files of a pod are removed after ``gone_s``."""

    def __init__(self, stops_s: float, gone_s: float, *, gives_up: bool = False) -> None:
        """``gives_up``: a kill raises TimeoutError instead, and the pod has not finished."""
        self._stops_s = stops_s
        self._gives_up = gives_up
        self._gone_at = gone_s
        self.woken: list[float] = []
        self.endings = Endings(
            cast(Any, None),
            kill=self.kill,
            is_over=lambda uid: not gives_up,
            clear=self.clear,
            ended=lambda: self.woken.append(self.now()),
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def kill(self, pod: Pod, options: KillOptions) -> None:
        await asyncio.sleep(self._stops_s)
        if self._gives_up:
            raise TimeoutError

    async def clear(self, uid: str, *, unreported: bool) -> bool:
        return self.now() >= self._gone_at

    async def busy_until(self, condition: Condition, *, hard: bool = True) -> float:
        while self.endings.is_busy(condition, hard=hard):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.25)
        return self.now()


@pytest.mark.parametrize(
    ("condition", "memory", "disk", "pids"),
    [(MEMORY, 1, 1, 1), (DISK, 1, 5, 1), (PIDS, 1, 1, 1), (None, 1, 5, 1)],
)
async def test_all_conditions_wait_for_what_an_ending_pod_frees(
    condition: Condition | None, memory: float, disk: float, pids: float
) -> None:
    pods = Pods(stops_s=1, gone_s=5)
    pods.endings.begin(Ending(make_pod("a"), condition, KillOptions()))
    until = await asyncio.gather(*(pods.busy_until(each) for each in (MEMORY, DISK, PIDS)))
    assert until == [memory, disk, pids]
    assert pods.woken[0] == 1, "there may be something to do now"


@pytest.mark.parametrize(("condition", "until"), [(MEMORY, 8), (DISK, STOPPING_S), (None, 3)])
async def test_memory_does_not_wait_long_for_another_condition(
    condition: Condition | None, until: float
) -> None:
    pods = Pods(stops_s=8, gone_s=8)
    pods.endings.begin(Ending(make_pod("a"), condition, KillOptions()))
    assert await pods.busy_until(MEMORY) == until


async def test_a_hard_threshold_does_not_wait_for_a_soft_grace() -> None:
    pods = Pods(stops_s=8, gone_s=8)
    pods.endings.begin(Ending(make_pod("a"), MEMORY, KillOptions(), hard=False))
    assert await pods.busy_until(MEMORY) == await pods.busy_until(DISK) == 0
    assert await pods.busy_until(DISK, hard=False) == 8


@pytest.mark.parametrize(
    ("condition", "memory", "disk"), [(MEMORY, CLEANUP_S, CLEANUP_S), (DISK, STOPPING_S, CLEANUP_S)]
)
async def test_a_pod_that_cannot_be_killed_is_awaited_like_any_other(
    condition: Condition, memory: float, disk: float
) -> None:
    """Source: docs/reference/constants.csv: pod cleanup wait."""
    pods = Pods(stops_s=10, gone_s=10, gives_up=True)
    pods.endings.begin(Ending(make_pod("a"), condition, KillOptions()))
    until = await asyncio.gather(pods.busy_until(MEMORY), pods.busy_until(DISK))
    assert list(until) == [memory, disk]
    assert pods.endings.stuck({make_pod("a").uid}), "others are evicted first"
