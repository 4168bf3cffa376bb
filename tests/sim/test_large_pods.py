"""Pods as large as the API permits, and larger manifests: no callback blocks the agent's loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.kit import large_pods
from tests.kit.large_pods import Make, annotated, many
from tests.sim.api import NODE
from tests.sim.loop import run
from tests.sim.slow_callbacks import slow_callbacks
from tests.sim.test_scenarios import EMPTY_WITHIN, play, ready, until
from tests.sim.user import container, pod
from tests.sim.world import World

AT_MOST_S = 0.05
TRIES = 3
"""CPU time of one callback varies with what else the machine does, but never downwards."""


def runs(name: str, **more: Any) -> JSON:
    """A container that runs."""
    return container(name, "run", **more)


def bound(made: JSON) -> JSON:
    """The pod as one of the simulated node."""
    spec = dict(made["spec"])
    found = pod(made["metadata"]["name"], spec.pop("containers"), **spec)
    found["metadata"].update(made["metadata"])
    return found


def _nearly_annotated(make: Make) -> JSON:
    return annotated(make, 200 << 10)


def least_slow(scenario: Callable[[World], Any], root: Path, **options: Any) -> list[Any]:
    """The slow callbacks in the quietest of a few runs."""
    found: list[Any] = []
    for attempt in range(TRIES):
        place = root / str(attempt)
        place.mkdir()
        with slow_callbacks(AT_MOST_S) as slow:
            play(scenario, place, **options)
        found = slow.found
        if not found:
            break
    return found


@pytest.mark.parametrize(
    "made",
    [
        large_pods.environment,
        large_pods.mounts,
        large_pods.objects,
        large_pods.annotation,
        large_pods.containers,
        large_pods.lists,
        large_pods.fields,
        large_pods.references,
        large_pods.hook,
    ],
)
def test_a_large_pod_keeps_nobody_waiting(tmp_path: Path, made: Callable[[Make], JSON]) -> None:
    async def scenario(world: World) -> None:
        world.registry.create(ADMIN, "configmaps", large_pods.SETTINGS, "default")
        world.user.create(bound(made(runs)))
        await until(world, lambda: ready(world, "large"), 60)
        for number in range(3):
            world.user.annotate("large", str(number))
            await asyncio.sleep(2)
        await asyncio.sleep(60)
        await world.kill()
        world.start()
        await asyncio.sleep(10)
        assert ready(world, "large")

    assert least_slow(scenario, tmp_path) == []


@pytest.mark.parametrize("made", [large_pods.environment, _nearly_annotated])
def test_a_large_manifest_keeps_nobody_waiting(
    tmp_path: Path, made: Callable[[Make], JSON]
) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        file = world.static_dir / "large.json"
        file.write_text(json.dumps(bound(made(runs))))
        name = f"large-{NODE}"
        await until(world, lambda: ready(world, name) or bool(_runs(world, made(runs))), 60)
        await asyncio.sleep(60)
        file.unlink()
        await until(world, lambda: not world.runtime.running(), 60)
        await until(world, lambda: world.user.get(name) is None, 60)

    assert least_slow(scenario, tmp_path, static=True) == []


def test_a_manifest_with_more_than_an_api_server_takes_is_refused(tmp_path: Path) -> None:
    """The kubelet validates manifests; here the sandbox of such a pod is not made."""

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        file = world.static_dir / "large.json"
        file.write_text(json.dumps(bound(annotated(runs, 1 << 20))))
        await asyncio.sleep(60)
        assert not world.runtime.running()
        file.unlink()
        await asyncio.sleep(60)

    assert least_slow(scenario, tmp_path, static=True) == []


def _runs(world: World, made: JSON) -> bool:
    return len(world.runtime.running()) == len(made["spec"]["containers"])


def test_names_at_their_limits(tmp_path: Path) -> None:
    """The longest that the kernel has a file name for: {namespace}_{name}_{uid} of its logs."""
    longest = ".".join(("n" * 63, "n" * 63, "n" * 63, "n" * 18))
    assert len(f"default_{longest}_{'u' * 36}") == 255

    async def scenario(world: World) -> None:
        names = many(2, lambda n: container(f"{n}" + "c" * 62, "run"))
        world.user.create(pod(longest, names))
        await until(world, lambda: ready(world, longest), 30)

    play(scenario, tmp_path)


def test_a_name_that_is_too_long_for_its_logs_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(1, tmp_path)
        world.start()
        world.user.create(pod("n" * 61 + ("." + "n" * 63) * 3, [container("c", "run")]))
        world.user.create(pod("other", [container("c", "run")]))
        await until(world, lambda: ready(world, "other"), 30)
        await asyncio.sleep(600)
        notified = [
            event.object["message"]
            for _, event in world.registry.store.entries("events")
            if event.object["reason"] == "FailedCreatePodSandBox"
        ]
        assert notified
        assert all(
            "give the pod a name that is 43 bytes shorter" in message for message in notified
        )
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await world.converges(EMPTY_WITHIN, world.remains)
        await world.stop()

    run(main())
