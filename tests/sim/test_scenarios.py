"""Directed scenarios: one thing goes wrong, at the worst moment, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.invariants import entries
from tests.sim.loop import run
from tests.sim.user import container, pod, sidecar
from tests.sim.world import World

EMPTY_WITHIN = 400.0
"""Seconds: while events flow the last records are dropped by a relist, at most 300 s later."""
Scenario = Callable[[World], Awaitable[None]]
both = pytest.mark.parametrize("events", [True, False], ids=["events", "relists"])


def play(scenario: Scenario, root: Path, **options: Any) -> World:
    """Play a scenario to its end: all pods are deleted and nothing may be left of them."""

    async def main() -> World:
        world = World(1, root, **options)
        world.start()
        await scenario(world)
        world.history.check()
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await world.converges(EMPTY_WITHIN, world.remains)
        await world.stop()
        world.history.check()
        return world

    return run(main())  # type: ignore[no-any-return]


def status(world: World, name: str) -> JSON:
    """The status that the API shows of a pod; empty when there is none."""
    return (world.user.get(name) or {}).get("status") or {}


def ready(world: World, name: str) -> bool:
    """Whether the API shows a pod as ready."""
    conditions = status(world, name).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def manifest(name: str, what: str = "run", more: str = "") -> str:
    """A manifest whose container behaves so; ``more`` is further fields of the spec."""
    image = f"{scripts.LOCAL}/{what}:1"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{{more}containers: [{{name: c, image: '{image}'}}]}}\n"
    )


def state(world: World, name: str, which: str) -> JSON:
    """The state of one container of a pod as the API shows it."""
    return (entries(status(world, name)).get(which) or {}).get("state") or {}


def node_ready(world: World) -> str:
    """Status of the node's Ready condition."""
    node = world.registry.find("nodes", "", NODE) or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == "Ready"), "")


async def until(world: World, condition: Callable[[], bool], within: float = 30.0) -> float:
    """Wait for a condition; the seconds it took."""
    return await world.converges(within, lambda: [] if condition() else ["condition not met"])


@both
def test_a_pod_lives(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        init = [container("i", "done"), sidecar("s")]
        world.user.create(pod("a", [container("c", "run"), container("d", "run")], init=init))
        assert await world.converges(10) < (2.0 if events else 4.0)
        world.user.delete("a")
        assert await until(world, lambda: world.user.get("a") is None) < 1.0

    play(scenario, tmp_path, events=events)


@both
def test_deleted_while_its_image_is_pulled(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run", scripts.SLOW)]))
        await asyncio.sleep(5)
        world.user.delete("a")
        assert await until(world, lambda: world.user.get("a") is None) < 2.0
        assert not any("start c" in line for line in world.history.lines)

    play(scenario, tmp_path, events=events)


@both
def test_deleted_while_its_sandbox_is_made(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        def on_step(where: str, what: str, number: int) -> None:
            if (where, what) == ("call", "RunPodSandbox"):
                world.on_step = None
                world.user.delete("a")

        world.on_step = on_step
        world.user.create(pod("a", [container("c", "run")]))
        await until(world, lambda: world.user.get("a") is None and world.on_step is None)
        assert not world.runtime.containers

    play(scenario, tmp_path, events=events)


async def _api_is_away(world: World) -> None:
    """Ten minutes: containers end and pods are deleted meanwhile."""
    world.user.create(pod("job", [container("c", "failslow")], restart="Never"))
    world.user.create(pod("stays", [container("c", "run")]))
    world.user.create(pod("goes", [container("c", "run")]))
    await until(world, lambda: len(world.runtime.running()) == 3)
    before = {c.id for c in world.runtime.running() if c.name == "c"}
    world.api_down()
    world.user.delete("goes")
    await asyncio.sleep(600)
    assert len(world.runtime.running()) == 2, "pods that the agent has got from the API run on"
    world.api_up()
    # as soon as the lease could be renewed, not when the watch would be tried next
    await until(world, lambda: world.user.get("goes") is None, 12)
    await world.converges(60)
    assert status(world, "job")["phase"] == "Failed"
    assert state(world, "job", "c")["terminated"]["exitCode"] == 7
    assert {c.id for c in world.runtime.running()} < before


@both
def test_api_away_for_ten_minutes(tmp_path: Path, events: bool) -> None:
    play(_api_is_away, tmp_path, events=events)


@both
def test_api_away_and_the_agent_killed_meanwhile(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("job", [container("c", "failslow")], restart="Never"))
        world.user.create(pod("stays", [container("c", "run")]))
        await until(world, lambda: len(world.runtime.running()) == 2)
        world.api_down()
        await asyncio.sleep(60)
        await world.kill()
        world.start()
        await asyncio.sleep(300)
        assert len(world.runtime.running()) == 1, "nothing is killed before the API has spoken"
        world.api_up()
        await world.converges(60)
        assert state(world, "job", "c")["terminated"]["exitCode"] == 7

    play(scenario, tmp_path, events=events)


@both
def test_runtime_away_for_five_minutes(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(10)
        await until(world, lambda: node_ready(world) == "True")
        running = [c.id for c in world.runtime.running()]
        world.runtime_down()
        await until(world, lambda: node_ready(world) == "False", 60)
        await asyncio.sleep(300)
        world.runtime_up()
        await until(world, lambda: node_ready(world) == "True", 60)
        await world.converges(60)
        await asyncio.sleep(120)
        assert [c.id for c in world.runtime.running()] == running

    play(scenario, tmp_path, events=events)


def test_lost_events_are_made_up_for(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        world.user.create(pod("b", [container("c", "run")], restart="Never"))
        await world.converges(10)
        await asyncio.sleep(30)
        assert world.runtime.events is not None
        world.runtime.events.lose = 1.0
        for victim in world.runtime.running():
            world.runtime.kill_container(victim, 9)
        await world.converges(400)
        assert state(world, "b", "c")["terminated"]["exitCode"] == 9

    play(scenario, tmp_path, events=True)


def test_broken_event_streams(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "failslow"), container("d", "run")]))
        assert world.runtime.events is not None
        for _ in range(60):
            world.runtime.events.break_stream()
            await asyncio.sleep(1)
        await world.converges(60)

    play(scenario, tmp_path, events=True)


def test_task_events_report_exits_of_a_runtime_without_events(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        init = [container("i", "done")]
        world.user.create(pod("a", [container("c", "run")], init=init, restart="Never"))
        await until(world, lambda: "running" in state(world, "a", "c"))
        await asyncio.sleep(3)
        assert world.runtime.task_events is not None
        for lost in (False, True):
            world.runtime.task_events.lose = float(lost)
            (running,) = world.runtime.running()
            world.runtime.kill_container(running, 3)
            took = await until(world, lambda: status(world, "a").get("phase") == "Failed")
            assert took < (2.5 if lost else 0.3)
            world.user.delete("a")
            await world.converges(30)
            world.user.create(pod("a", [container("c", "run")], restart="Never"))
            await until(world, lambda: "running" in state(world, "a", "c"))

    play(scenario, tmp_path, events=False, task_events=True)


@both
def test_crash_loop_for_two_hours(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "instant")]))
        await asyncio.sleep(7200)
        starts = _moments(world, " start ")
        ends = _moments(world, " exit ")
        delays = [start - end for start, end in zip(starts[1:], ends, strict=False)]
        late = [d - w for d, w in zip(delays, (0, 10, 20, 40, 80, 160), strict=False)]
        assert all(0 <= seconds < (0.3 if events else 1.6) for seconds in late), delays
        assert all(300 <= d < 302 for d in delays[6:]), delays
        assert len(starts) > 25
        waits = entries(status(world, "a"))["c"]
        assert waits["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert waits["lastState"]["terminated"]["exitCode"] == 5
        assert waits["restartCount"] == len(starts) - 1

    play(scenario, tmp_path, events=events)


def _moments(world: World, what: str) -> list[float]:
    return [
        float(line.split()[0])
        for line in world.history.lines
        if f"runtime {what}" in line and " c#" in line
    ]


@both
def test_a_good_run_ends_a_crash_loop(tmp_path: Path, events: bool) -> None:
    """After ten minutes without a raise the delay begins anew."""

    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        for _ in range(3):
            await until(world, lambda: bool(world.runtime.running()), 60)
            world.runtime.kill_container(world.runtime.running()[0], 1)
        await until(world, lambda: bool(world.runtime.running()), 60)
        await asyncio.sleep(900)
        world.runtime.kill_container(world.runtime.running()[0], 1)
        assert await until(world, lambda: bool(world.runtime.running()), 60) < 2.0

    play(scenario, tmp_path, events=events)


@both
def test_force_delete(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "stubborn")], grace=300))
        await world.converges(10)
        world.user.delete("a", 0)
        await until(world, lambda: not world.runtime.running(), 400)

    play(scenario, tmp_path, events=events)


@both
def test_the_grace_period_can_be_cut_short(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "stubborn")], grace=300))
        await world.converges(10)
        world.user.delete("a")
        await asyncio.sleep(5)
        assert world.runtime.running()
        world.user.delete("a", 2)
        assert await until(world, lambda: world.user.get("a") is None, 60) < 4.0

    play(scenario, tmp_path, events=events)


@both
def test_a_name_used_again_at_once(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        for grace in (0, 1, 0, None):
            world.user.create(pod("a", [container("c", "slowstop")]))
            await world.converges(20)
            world.user.delete("a", grace)
            await until(world, lambda: world.user.get("a") is None)
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(30)

    play(scenario, tmp_path, events=events)


@both
def test_watches_that_are_always_too_old(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.server.removed = True
        world.server.break_watches()
        for number in range(5):
            world.user.create(pod(f"p{number}", [container("c", "run")]))
            await asyncio.sleep(40)
        requested = world.server.watch_count
        world.server.removed = False
        await world.converges(60)
        assert requested < 200, "an API in trouble does not get requests without end"

    play(scenario, tmp_path, events=events)


@both
def test_orphans_of_an_earlier_life_are_ended(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "stubborn")]))
        world.user.create(pod("b", [container("c", "run")]))
        await world.converges(10)
        kept = [c.id for c in world.runtime.running() if c.image.endswith("run:1")]
        await world.kill()
        world.user.delete("a", 0)
        await asyncio.sleep(10)
        world.start()
        await until(world, lambda: [c.id for c in world.runtime.running()] == kept, 30)

    play(scenario, tmp_path, events=events)


@both
def test_ends_while_the_agent_is_down(tmp_path: Path, events: bool) -> None:
    """The agent is away while containers end and a pod is deleted."""

    async def scenario(world: World) -> None:
        world.user.create(pod("never", [container("c", "failslow")], restart="Never"))
        world.user.create(pod("again", [container("c", "failslow")], restart="OnFailure"))
        world.user.create(pod("gone", [container("c", "run")]))
        await until(world, lambda: len(world.runtime.running()) == 3)
        await world.kill()
        world.user.delete("gone")
        await asyncio.sleep(60)
        world.start()
        await until(world, lambda: world.user.get("gone") is None)
        await world.converges(60)
        assert state(world, "never", "c")["terminated"]["exitCode"] == 7
        assert entries(status(world, "again"))["c"]["restartCount"] == 1

    play(scenario, tmp_path, events=events)


@both
def test_a_container_that_a_dead_agent_still_starts(tmp_path: Path, events: bool) -> None:
    """StartContainer takes long: the next agent sees a container that was made, not started."""

    async def scenario(world: World) -> None:
        world.runtime.start_takes = (5.0, 5.0)

        def on_step(where: str, what: str, number: int) -> None:
            if (where, what) == ("call", "StartContainer"):
                world.on_step = None
                asyncio.get_running_loop().call_later(0.1, world.die)

        world.on_step = on_step
        world.user.create(pod("a", [container("c", "run")]))
        await until(world, lambda: not world.alive)
        await world.buried()
        world.start()
        await world.converges(60)

    play(scenario, tmp_path, events=events)


@both
def test_a_never_restarted_pod_without_its_sandbox_fails(tmp_path: Path, events: bool) -> None:
    """A pod that may not restart and lost its sandbox before all containers ran has failed."""

    async def scenario(world: World) -> None:
        containers = [container("c", "done"), container("d", "run", scripts.SLOW)]
        world.user.create(pod("a", containers, restart="Never"))
        await asyncio.sleep(5)
        for sandbox in list(world.runtime.sandboxes.values()):
            world.runtime.kill_sandbox(sandbox)
        await until(world, lambda: status(world, "a").get("phase") == "Failed", 120)

    play(scenario, tmp_path, events=events)


@both
def test_static_pods(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        file = world.static_dir / "web.yaml"
        file.write_text(manifest("web", "run"))
        mirror = f"web-{NODE}"
        await until(world, lambda: ready(world, mirror), 60)
        first = [c.id for c in world.runtime.running()]
        assert len(first) == 1
        await world.kill()
        world.start()
        await asyncio.sleep(60)
        assert [c.id for c in world.runtime.running()] == first, "a restart leaves it alone"
        world.registry.delete(ADMIN, "pods", mirror, "default")
        await until(world, lambda: ready(world, mirror), 60)
        assert [c.id for c in world.runtime.running()] == first, "the mirror is only a picture"
        file.write_text(manifest("web", "run143"))
        await until(world, lambda: [c.id for c in world.runtime.running()] not in ([], first), 60)
        file.unlink()
        await until(world, lambda: not world.runtime.running(), 60)
        await until(world, lambda: world.user.get(mirror) is None, 60)

    play(scenario, tmp_path, events=events, static=True)


@both
def test_a_wrong_system_label_of_the_node_is_corrected(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        await until(world, lambda: node_ready(world) == "True", 30)
        await asyncio.sleep(150)
        lie: JSON = {"metadata": {"labels": {"kubernetes.io/os": "dummy", "mine": "stays"}}}
        world.registry.patch(ADMIN, "nodes", NODE, lie)

        def labels() -> JSON:
            node = world.registry.find("nodes", "", NODE) or {}
            return dict(node["metadata"]["labels"])

        await until(world, lambda: labels()["kubernetes.io/os"] == "linux", 15)
        assert labels()["mine"] == "stays"

    play(scenario, tmp_path, events=events)
