"""Dead containers are removed after a newer one has died and their end is in the API."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.base.tasks import Backlog
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.syncloop.housekeeping import DeadContainers
from tests.kit.virtual_time import on_virtual_time, settle


@pytest.mark.parametrize(("notified", "absent"), [(True, ["c2", "c1"]), (False, ["c1"])])
@on_virtual_time
async def test_both_runs_that_a_status_shows_stay_until_it_is_reported(
    notified: bool, absent: list[str]
) -> None:
    removed: list[str] = []

    async def remove(container_id: str) -> None:
        removed.append(container_id)

    cache = PodStatusCache()
    exited = ContainerState.EXITED
    # the clock was set back before c3
    runs = tuple(
        ContainerStatus(f"c{n}", "main", exited, created_at=date, restart_count=n)
        for n, date in ((3, 0), (2, 2), (1, 1))
    )
    cache.set(PodRuntimeStatus("uid", "web", "default", containers=runs, observed_at=1))
    backlog = Backlog()
    dead = DeadContainers(remove, cache, lambda uid: False, backlog, lambda uid: notified)
    running = asyncio.ensure_future(dead.run())
    with backlog.waiting():
        dead.died("uid", "c3")
        await settle()
        assert removed == [], "pods that wait for their turn go first"
    await settle()
    running.cancel()
    assert removed == absent
