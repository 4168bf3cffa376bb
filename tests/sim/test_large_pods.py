"""Pods as large as the API lets through, manifests that are larger: the agent's loop goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.sim.api import NODE
from tests.sim.loop import run
from tests.sim.slow_callbacks import slow_callbacks, slowness
from tests.sim.test_scenarios import EMPTY_WITHIN, play, status, until
from tests.sim.user import container, pod
from tests.sim.world import World

AT_MOST_S = 0.05
TRIES = 3
"""CPU time of one callback varies with what else the machine does, but never downwards."""


def many(count: int, entry: Callable[[int], Any]) -> list[Any]:
    return [entry(number) for number in range(count)]


def environment() -> JSON:
    def refers(number: int) -> JSON:
        return {"name": f"VARIABLE_{number}", "value": f"$(VARIABLE_{number - 1}) $$"[:40]}

    literal = many(10_000, lambda n: {"name": f"VARIABLE_{n}", "value": f"a value, {n}"})
    mixed = [refers(n) if n % 2 else each for n, each in enumerate(literal)]
    return pod("large", [container("c", "run", env=literal), container("d", "run", env=mixed)])


def mounts() -> JSON:
    volumes = many(1000, lambda n: {"name": f"v{n}", "emptyDir": {}})
    uses = many(1000, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    made = many(40, lambda n: container(f"c{n}", "run", volumeMounts=uses))
    return pod("large", made, volumes=volumes)


def objects() -> JSON:
    volumes = many(1000, lambda n: {"name": f"v{n}", "configMap": {"name": "settings"}})
    uses = many(1000, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    return pod("large", [container("c", "run", volumeMounts=uses)], volumes=volumes)


def annotation() -> JSON:
    return _annotated(250 * 1024)


def _annotated(size: int) -> JSON:
    field = {"fieldRef": {"fieldPath": "metadata.annotations['large']"}}
    volumes = many(
        20, lambda n: {"name": f"v{n}", "downwardAPI": {"items": [{"path": "a", **field}]}}
    )
    uses = many(20, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    env = [{"name": "LARGE", "valueFrom": field}]
    made = pod("large", [container("c", "run", env=env, volumeMounts=uses)], volumes=volumes)
    made["metadata"]["annotations"] = {"large": "y" * size}
    return made


def fields() -> JSON:
    """Files that each show all annotations, and as many small ones as fit."""
    whole = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    limit = {"resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}
    items = many(60, lambda n: {"path": f"a{n}", **whole})
    items += many(5000, lambda n: {"path": f"l{n}", **limit})
    volume = {"name": "v", "downwardAPI": {"items": items}}
    use = {"name": "v", "mountPath": "/m"}
    made = pod("large", [container("c", "run", volumeMounts=[use])], volumes=[volume])
    made["metadata"]["annotations"] = {"large": "\n" * 250_000}
    return made


def references() -> JSON:
    """Variables that each show a key of the same object, and commands made of them."""
    key = {"configMapKeyRef": {"name": "settings", "key": "a"}}
    env = many(5000, lambda n: {"name": f"VARIABLE_{n}", "valueFrom": key})
    env.append({"name": "LARGE", "value": "x" * 50_000})
    args = many(100, lambda n: "$(LARGE)")
    return pod("large", [container("c", "run", env=env, args=args)])


def hook() -> JSON:
    handler = {"exec": {"command": ["sh", "-c", "x" * 1_300_000]}}
    return pod("large", [container("c", "run", lifecycle={"preStop": handler})])


def containers() -> JSON:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 60}
    return pod("large", many(200, lambda n: container(f"c{n}", "run", readinessProbe=probe)))


def lists() -> JSON:
    return pod(
        "large",
        [container("c", "run", ports=many(5000, lambda n: {"containerPort": n + 1}))],
        tolerations=many(5000, lambda n: {"key": f"k{n}", "operator": "Exists"}),
        hostAliases=many(5000, lambda n: {"ip": "192.0.2.1", "hostnames": [f"h{n}"]}),
        imagePullSecrets=many(2000, lambda n: {"name": f"s{n}"}),
    )


def ready(world: World, name: str) -> bool:
    conditions = status(world, name).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def least_slow(scenario: Callable[[World], Any], root: Path, **options: Any) -> list[Any]:
    """What was slow in the quietest of a few runs."""
    found: list[Any] = []
    for attempt in range(TRIES):
        place = root / str(attempt)
        place.mkdir()
        with slow_callbacks(AT_MOST_S * slowness()) as slow:
            play(scenario, place, **options)
        found = slow.found
        if not found:
            break
    return found


@pytest.mark.parametrize(
    "made", [environment, mounts, objects, annotation, containers, lists, fields, references, hook]
)
def test_a_large_pod_keeps_nobody_waiting(tmp_path: Path, made: Callable[[], JSON]) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}

    async def scenario(world: World) -> None:
        world.registry.create(
            ADMIN, "configmaps", {**settings, "metadata": {"name": "settings"}}, "default"
        )
        world.user.create(made())
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


@pytest.mark.parametrize("made", [environment, lambda: _annotated(200 << 10)])
def test_a_large_manifest_keeps_nobody_waiting(tmp_path: Path, made: Callable[[], JSON]) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        file = world.static_dir / "large.json"
        file.write_text(json.dumps(made()))
        name = f"large-{NODE}"
        await until(world, lambda: ready(world, name) or bool(_runs(world, made())), 60)
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
        file.write_text(json.dumps(_annotated(1 << 20)))
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
        told = [
            event.object["message"]
            for _, event in world.registry.store.entries("events")
            if event.object["reason"] == "FailedCreatePodSandBox"
        ]
        assert told
        assert all("File name too long" in message for message in told)
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await world.converges(EMPTY_WITHIN, world.remains)
        await world.stop()

    run(main())
