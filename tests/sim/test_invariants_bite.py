"""The judges are judged: an agent that is broken on purpose must be found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.runtime_manager.act import executor
from kubeletpy.runtime_manager.act.garbage_collection import ContainerGarbageCollector
from kubeletpy.runtime_manager.act.kill_pod import Killer
from kubeletpy.runtime_manager.plan.actions import StartContainer
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from kubeletpy.runtime_manager.plan.crash_loop import CrashLoopBackoff
from kubeletpy.runtime_manager.read import status_source
from kubeletpy.status import container_status
from kubeletpy.status.status_manager import StatusEntry
from kubeletpy.syncloop import event_stream, pleg
from kubeletpy.syncloop.sources.manifest import ReadySources
from tests.kit.virtual_time import LoopClock
from tests.sim import scripts
from tests.sim.history import Violation
from tests.sim.loop import run
from tests.sim.user import PULL_SECRET, container, pod, sidecar
from tests.sim.world import World

Breaker = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[World], Awaitable[None]]


def exit_codes_are_dropped(patch: pytest.MonkeyPatch) -> None:
    right = container_status._state

    def wrong(inputs: Any, container: Any, record: Any, old: Any) -> Any:
        return right(inputs, container, replace(record, exit_code=0), old)

    patch.setattr(container_status, "_state", wrong)


def running_containers_are_started_again(patch: pytest.MonkeyPatch) -> None:
    def wrong(pod: Any, status: Any, *args: Any, **options: Any) -> Any:
        plan = compute_pod_actions(pod, status, *args, **options)
        record = status.newest(pod.containers[0]["name"])
        if record is None or not record.running:
            return plan
        again = StartContainer(ContainerKind.REGULAR, pod.containers[0], "broken on purpose")
        return replace(plan, regular_to_start=(again,))

    patch.setattr(executor, "compute_pod_actions", wrong)


def init_containers_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    def wrong(pod: Any, status: Any, *args: Any, **options: Any) -> Any:
        plan = compute_pod_actions(pod, status, *args, **options)
        if not plan.init_to_start:
            return plan
        starts = [StartContainer(ContainerKind.REGULAR, c, "broken") for c in pod.containers]
        return replace(plan, init_to_start=(), regular_to_start=tuple(starts))

    patch.setattr(executor, "compute_pod_actions", wrong)


def crash_loops_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CrashLoopBackoff, "admit", lambda *args: None)


def sources_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadySources, "all", lambda self: True)


def pods_are_deleted_before_they_have_stopped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatusEntry, "may_delete", property(lambda entry: entry.pod.being_deleted))


def containers_are_left_running(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: Any, **options: Any) -> list[Any]:
        return []

    patch.setattr(Killer, "stop_pod", nothing)


def records_are_never_removed(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: Any, **options: Any) -> None:
        return None

    patch.setattr(ContainerGarbageCollector, "collect", nothing)


def observations_are_ordered_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    def wrong() -> int:
        return int(LoopClock().now() * 1e9)

    for module in (status_source, pleg, event_stream):
        patch.setattr(module, "steady_ns", wrong)


def every_status_that_was_read_counts_as_known(patch: pytest.MonkeyPatch) -> None:
    """Restore an old fault of the PLEG: what the cache refused was not read again."""
    observations_are_ordered_by_the_wall_clock(patch)
    right = PodStatusCache.refuses
    patch.setattr(PodStatusCache, "refuses", lambda *args: False)

    def wrong(self: Any, status: Any, *, own: bool = False) -> bool:
        old = self._entries.get(status.uid)
        if old is not None and not own and right(self, status):
            return False
        return kept(self, status, own=own)

    kept = PodStatusCache.set
    patch.setattr(PodStatusCache, "set", wrong)


async def fails_once(world: World) -> None:
    world.user.create(pod("a", [container("c", "fail")], restart="Never"))
    await world.converges(60)


async def ends_after_the_clock_was_set_back(world: World) -> None:
    world.user.create(pod("a", [container("c", "run")], restart="Never"))
    await world.converges(60)
    world.set_clock(-300.0)
    world.runtime.kill_container(world.runtime.running()[0], 3)
    await world.converges(200)


async def ends_long_after_the_clock_was_set_back(world: World) -> None:
    world.user.create(pod("a", [container("c", "run")], restart="Never"))
    await world.converges(60)
    world.set_clock(-300.0)
    world.runtime.kill_container(world.runtime.running()[0], 3)
    await world.converges(1500)


async def runs(world: World) -> None:
    world.user.create(pod("a", [container("c", "run")], init=[container("i", "done")]))
    await world.converges(60)
    await asyncio.sleep(10)


async def has_sidecar(world: World) -> None:
    world.user.create(pod("a", [container("c", "run")], init=[sidecar("i", "run")]))
    await world.converges(60)


async def loops(world: World) -> None:
    world.user.create(pod("a", [container("c", "instant")]))
    await asyncio.sleep(60)
    world.history.check()


async def agent_comes_back_without_api(world: World) -> None:
    world.user.create(pod("a", [container("c", "run")]))
    await world.converges(60)
    await world.kill()
    world.api_down()
    world.start()
    await asyncio.sleep(60)
    world.history.check()


async def is_deleted(world: World) -> None:
    world.user.create(pod("a", [container("c", "slowstop")]))
    await world.converges(60)
    world.user.delete("a")
    await world.converges(300, world.remains)


def images_are_anybodys(patch: pytest.MonkeyPatch) -> None:
    async def wrong(*args: Any) -> bool:
        return True

    patch.setattr(PullRecords, "may_use", wrong)


async def image_of_another(world: World) -> None:
    desired = [container("c", "run", scripts.SECRET)]
    world.user.create(pod("a", desired, imagePullSecrets=[{"name": PULL_SECRET}]))
    await world.converges(60)
    await world.kill()
    world.user.create(pod("b", desired))
    world.start()
    await asyncio.sleep(60)
    world.history.check()


@pytest.mark.parametrize(
    ("breaker", "story", "verdict"),
    [
        (images_are_anybodys, image_of_another, "an image that its pod may not pull"),
        (exit_codes_are_dropped, fails_once, "shown with exit code 0, ended with 3"),
        (running_containers_are_started_again, runs, "two running containers"),
        (init_containers_are_not_waited_for, runs, "before init container i was done"),
        (init_containers_are_not_waited_for, has_sidecar, "before init container i was done"),
        (crash_loops_do_not_wait, loops, "after its end, not 10 s"),
        (sources_are_not_waited_for, agent_comes_back_without_api, "healthy and is stopped"),
        (pods_are_deleted_before_they_have_stopped, is_deleted, "is deleted while"),
        (containers_are_left_running, is_deleted, "not converged"),
        (records_are_never_removed, is_deleted, "not converged"),
        (
            observations_are_ordered_by_the_wall_clock,
            ends_after_the_clock_was_set_back,
            "not converged",
        ),
        (
            every_status_that_was_read_counts_as_known,
            ends_long_after_the_clock_was_set_back,
            "not converged",
        ),
    ],
)
def test_a_broken_agent_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaker: Breaker, story: Story, verdict: str
) -> None:
    async def main() -> None:
        world = World(1, tmp_path)
        world.start()
        await story(world)
        world.history.check()

    breaker(monkeypatch)
    with pytest.raises(Violation, match=verdict):
        run(main())


@pytest.mark.parametrize(
    "story",
    [
        fails_once,
        runs,
        loops,
        agent_comes_back_without_api,
        image_of_another,
        ends_after_the_clock_was_set_back,
    ],
)
def test_a_sound_agent_is_not(tmp_path: Path, story: Story) -> None:
    async def main() -> None:
        world = World(1, tmp_path)
        world.start()
        await story(world)
        world.history.check()

    run(main())
