"""Pods resized as a whole (KEP-5419): the pod's own cgroup follows, containers go on."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from kubeletpy.base.api.quantity import parse
from kubeletpy.base.api.types import JSON
from tests.sim.loop import run
from tests.sim.test_resize import waits
from tests.sim.test_scenarios import EMPTY_WITHIN, both, play, status, until
from tests.sim.user import container, pod, resources
from tests.sim.world import World

MI = 1 << 20


def whole(name: str, cpu: str, memory: str = "64Mi") -> JSON:
    """A pod with resources of its own; one container has none, one has its own."""
    own = container("own", "run", resources=resources("100m", "48Mi"))
    return pod(name, [container("free", "run"), own], resources=resources(cpu, memory))


def group(world: World, name: str) -> tuple[int | None, int | None]:
    """Quota and memory limit of a pod's own cgroup."""
    assert world.groups is not None
    found = world.groups.limits[(world.user.get(name) or {})["metadata"]["uid"]]
    return found.quota_us, found.memory


def resized(world: World, name: str, desired: JSON) -> bool:
    """Whether the API shows a resize as done."""
    reported = status(world, name)
    generation = (world.user.get(name) or {})["metadata"].get("generation")
    open_ends = [c for c in reported.get("conditions") or () if c["type"].startswith("PodResize")]
    notified = amounts(reported.get("resources")) == amounts(desired)
    return notified and reported.get("observedGeneration") == generation and not open_ends


def amounts(supplied: JSON | None) -> dict[str, dict[str, Decimal]]:
    """Resources as numbers."""
    return {
        kind: {name: parse(text) for name, text in (found or {}).items()}
        for kind, found in (supplied or {}).items()
    }


def ids(world: World) -> set[str]:
    return {c.id for c in world.runtime.running()}


@both
def test_a_whole_pod_grows_and_shrinks(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(whole("a", "500m"))
        await world.converges(30)
        before = ids(world)
        assert group(world, "a") == (100_000, 64 * MI)
        for cpu, memory in (("1", "128Mi"), ("300m", "60Mi"), ("1500m", "60Mi")):
            desired = resources(cpu, memory)
            world.user.resize_whole("a", desired)
            await until(world, lambda desired=desired: resized(world, "a", desired))  # type: ignore[misc]
            quota = int(desired["limits"]["cpu"].removesuffix("m")) * 100
            assert group(world, "a") == (quota, int(memory.removesuffix("Mi")) * MI)
        assert ids(world) == before
        (own,) = [c for c in world.runtime.running() if c.name == "own"]
        assert own.config.linux.resources.memory_limit_in_bytes == 48 * MI

    play(scenario, tmp_path, events=events, pod_groups=True)


@both
def test_it_waits_for_free_resources_like_any_other(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(whole("a", "1"))
        world.user.create(whole("b", "2"))
        await world.converges(30)
        desired = resources("3")
        world.user.resize_whole("a", desired)
        await until(world, lambda: waits(world, "a") == "Deferred")
        await asyncio.sleep(600)
        assert group(world, "a") == (200_000, 64 * MI)
        world.user.delete("b")
        await until(world, lambda: resized(world, "a", desired))
        assert group(world, "a") == (600_000, 64 * MI)

    play(scenario, tmp_path, events=events, pod_groups=True)


@both
def test_a_cgroup_write_that_fails_is_retried(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        assert world.groups is not None
        world.user.create(whole("a", "1"))
        await world.converges(30)
        before = ids(world)
        world.groups.refusal = "memory.max: Device or resource busy"
        desired = resources("1", "128Mi")
        world.user.resize_whole("a", desired)
        await until(world, lambda: "busy" in progress(world, "a"))
        await asyncio.sleep(120)
        assert group(world, "a") == (200_000, 64 * MI)
        if events:
            (sandbox,) = world.runtime.sandboxes.values()
            notified = sandbox.config.linux.resources.memory_limit_in_bytes
            assert notified == 64 * MI, "the runtime gets what the pod really has"
        world.groups.refusal = ""
        await until(world, lambda: resized(world, "a", desired), 200)
        assert group(world, "a") == (200_000, 128 * MI)
        assert ids(world) == before

    play(scenario, tmp_path, events=events, pod_groups=True)


def progress(world: World, name: str) -> str:
    """The API's message about a resize in progress; empty: there is none."""
    return next(
        (
            condition.get("message") or ""
            for condition in status(world, name).get("conditions") or ()
            if condition["type"] == "PodResizeInProgress"
        ),
        "",
    )


@pytest.mark.parametrize(
    ("events", "grows"), [(True, False), (False, True)], ids=["shrinks-events", "grows-relists"]
)
def test_the_next_agent_finishes_a_resize_killed_at_any_step(
    tmp_path: Path, events: bool, grows: bool
) -> None:
    """The agent dies at the n-th boundary after the resize was requested, for each n."""
    desired = resources("1500m", "256Mi") if grows else resources("200m", "56Mi")
    wanted_group = (300_000, 256 * MI) if grows else (40_000, 56 * MI)

    async def life(root: Path, fatal: int) -> bool:
        world = World(fatal, root, events=events, pod_groups=True)
        world.start()
        world.user.create(whole("a", "500m"))
        await world.converges(30)
        before, first = ids(world), world.steps
        died: list[str] = []

        def on_step(where: str, what: str, number: int) -> None:
            if number - first == fatal:
                died.append(f"{where} {what}")
                world.die()

        world.on_step = on_step
        world.user.resize_whole("a", desired)
        await asyncio.sleep(10)
        world.on_step = None
        if died:
            await world.buried()
            await asyncio.sleep(5)
            world.start()
        await until(world, lambda: resized(world, "a", desired), 200)
        assert group(world, "a") == wanted_group, died
        assert ids(world) == before, died
        world.user.delete("a")
        await world.converges(EMPTY_WITHIN, world.remains)
        await world.stop()
        return bool(died)

    for fatal in range(1, 40):
        place = tmp_path / str(fatal)
        place.mkdir()
        if not run(life(place, fatal)):
            break
    assert fatal > 8, "a resize has more steps than that"
