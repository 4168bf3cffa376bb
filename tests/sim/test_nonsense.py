"""Clocks that jump, a runtime and an API that answer nonsense: running pods are left alone, and
changes that users made meanwhile are applied afterwards."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import from_status
from kubeletpy.kubeapi.protocol import Call, WatchEvent
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager import names
from tests.sim.api import SimKubeApi
from tests.sim.test_scenarios import both, node_ready, play, state, until
from tests.sim.user import container, pod
from tests.sim.world import World

DAY = 86_400.0


async def _a_pod_that_runs(world: World) -> Callable[[], bool]:
    """Start it; whether it is still the same."""
    world.user.create(pod("keeper", [container("c", "run")]))
    world.user.create(pod("crashes", [container("c", "failslow")]))
    await until(world, lambda: "running" in state(world, "keeper", "c"))
    began = state(world, "keeper", "c")["running"]["startedAt"]
    (found,) = world.runtime.running((world.user.get("keeper") or {})["metadata"]["uid"])
    return lambda: found.running and state(world, "keeper", "c")["running"]["startedAt"] == began


def _runs(world: World) -> int:
    """How often the container that crashes was started."""
    uid = (world.user.get("crashes") or {})["metadata"]["uid"][:8]
    return sum(" start " in line and uid in line for line in world.history.lines)


def _restarts(world: World) -> int:
    """Restarts of that container as the API shows them."""
    statuses = (world.user.get("crashes") or {})["status"]["containerStatuses"]
    return int(statuses[0]["restartCount"])


@both
@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
def test_the_clock_jumps_by_a_day(tmp_path: Path, events: bool, jump: float) -> None:
    async def scenario(world: World) -> None:
        same = await _a_pod_that_runs(world)
        await until(world, lambda: "waiting" in state(world, "crashes", "c"), within=60)
        world.set_clock(jump)
        world.user.create(pod("later", [container("c", "run")]))
        await until(world, lambda: "running" in state(world, "later", "c"))
        before, restarts = _runs(world), _restarts(world)
        await until(world, lambda: _runs(world) > before + 1, within=120)
        await until(world, lambda: _restarts(world) > restarts + 1, within=120)
        assert same()
        assert node_ready(world) == "True"
        await world.kill()
        world.start()
        await asyncio.sleep(60)
        assert same()
        await until(world, lambda: node_ready(world) == "True")
        if jump < 0:  # what was made before counts as young for so long: nothing of it is removed
            # a day later, as it seems: how often it crashed yesterday does not count
            world.user.delete("crashes")
            await until(world, lambda: world.user.get("crashes") is None)
            world.set_clock(-jump)
            await asyncio.sleep(60)
            assert same()

    play(scenario, tmp_path, events=events)


def _mad_containers(found: list[cri.Container]) -> list[cri.Container]:
    """The answer, twice, and containers that nobody has made."""
    odd = []
    for number, about in enumerate(
        (
            {},
            {names.POD_UID: "../../etc", names.CONTAINER_NAME: "c"},
            {names.POD_UID: "nobody's", names.POD_NAME: "x", names.POD_NAMESPACE: "y"},
        )
    ):
        one = cri.Container(id=f"odd-{number}", pod_sandbox_id="none", labels=about)
        one.state = 17  # type: ignore[assignment]
        one.created_at = -(1 << 63)
        one.annotations[names.RESTART_COUNT] = "9" * 18
        odd.append(one)
    return [*odd, *found, *found]


@both
def test_a_runtime_that_answers_nonsense(
    tmp_path: Path, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        same = await _a_pod_that_runs(world)
        runtime = world.runtime
        containers, sandboxes = runtime.list_containers, runtime.list_sandboxes
        status = runtime.container_status

        def mad_status(container_id: str) -> cri.ContainerStatusResponse:
            found = status(container_id)
            found.status.finished_at = (1 << 63) - 1 if found.status.finished_at else 0
            found.status.message = "\x1b[2J\0" * 5000
            return found

        with monkeypatch.context() as patch:
            patch.setattr(runtime, "list_containers", lambda c: _mad_containers(containers(c)))
            patch.setattr(runtime, "list_sandboxes", lambda c: [*sandboxes(c), *sandboxes(c)])
            patch.setattr(runtime, "container_status", mad_status)
            world.user.create(pod("later", [container("c", "run")]))
            await asyncio.sleep(400)
            assert same()
        await until(world, lambda: "running" in state(world, "later", "c"), within=120)
        assert same()

    play(scenario, tmp_path, events=events)


async def _mad_watch(
    follow: Callable[[SimKubeApi, Call], AsyncIterator[WatchEvent]], api: SimKubeApi, call: Call
) -> AsyncIterator[WatchEvent]:
    """Each event twice, after what it replaced, and with objects of other kinds or none."""
    known: dict[str, JSON] = {}
    async for event in follow(api, call):
        if event.type == "BOOKMARK":
            yield event
            continue
        name = event.object["metadata"]["name"]
        for odd in (
            {},
            {"metadata": None, "kind": "Pod"},
            {"metadata": {"name": ["x"]}},
            {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "d"}},
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": 500},
        ):
            yield WatchEvent("MODIFIED", copy.deepcopy(odd))
        if name in known:
            yield WatchEvent("MODIFIED", known[name])
        yield event
        yield WatchEvent("ADDED" if event.type == "MODIFIED" else event.type, event.object)
        known[name] = event.object


@both
def test_an_api_that_tells_nonsense(
    tmp_path: Path, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow: Any = SimKubeApi.follow

    async def scenario(world: World) -> None:
        same = await _a_pod_that_runs(world)
        world.server.break_watches()
        with monkeypatch.context() as patch:
            patch.setattr(SimKubeApi, "follow", lambda api, call: _mad_watch(follow, api, call))
            world.server.break_watches()
            await asyncio.sleep(60)
            world.user.create(pod("later", [container("c", "run")]))
            world.user.annotate("later", "new")
            await until(world, lambda: "running" in state(world, "later", "c"), within=120)
            world.user.delete("later")
            await until(world, lambda: world.user.get("later") is None, within=120)
            await asyncio.sleep(60)
            assert same()
            assert not any("later" in str(found) for found in world.runtime.running())
        world.server.break_watches()
        assert same()

    play(scenario, tmp_path, events=events)


@both
def test_an_api_that_wants_to_be_left_alone_for_an_hour(
    tmp_path: Path, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        same = await _a_pod_that_runs(world)
        with monkeypatch.context() as patch:
            notified = 0

            async def refuse(api: SimKubeApi, what: str, _work: Any) -> Any:
                nonlocal notified
                notified += 1
                await asyncio.sleep(0.01)
                body = {"reason": "TooManyRequests", "message": "later", "code": 429}
                raise from_status(429, body, retry_after=3600.0)

            patch.setattr(SimKubeApi, "_call", refuse)
            world.server.break_watches()
            world.user.create(pod("later", [container("c", "run")]))
            await asyncio.sleep(300)
            assert same()
            assert notified < 300, "a server that is tired does not get requests all the time"
        # it is better after five minutes: nobody waits for the rest of the hour
        await until(world, lambda: "running" in state(world, "later", "c"), within=120)
        await until(world, lambda: node_ready(world) == "True", within=60)
        assert same()

    play(scenario, tmp_path, events=events)
