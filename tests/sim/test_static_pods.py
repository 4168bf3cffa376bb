"""Static pods whose manifests are broken: the pods that run are not harmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeletpy.api.types import JSON
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.test_scenarios import both, play, status, until
from tests.sim.world import World


def manifest(name: str, what: str = "run") -> str:
    image = f"{scripts.LOCAL}/{what}:1"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
    )


def mirror_ready(world: World, name: str) -> bool:
    """Whether the API shows a static pod as ready."""
    conditions = status(world, f"{name}-{NODE}").get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def running(world: World) -> dict[str, str]:
    """The containers that run: id by the pod's name."""
    return {c.sandbox.config.metadata.name: c.id for c in world.runtime.running()}


@both
def test_a_manifest_that_is_nonsense_when_the_agent_starts(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        web, other = world.static_dir / "web.yaml", world.static_dir / "other.yaml"
        web.write_text(manifest("web"))
        other.write_text(manifest("other"))
        await until(world, lambda: mirror_ready(world, "web") and mirror_ready(world, "other"), 60)
        first = running(world)
        await world.kill()
        web.write_text("apiVersion: v1\nkind: [")
        other.write_text(manifest("other", "run143"))
        world.start()
        await asyncio.sleep(400)
        now = running(world)
        assert now[f"web-{NODE}"] == first[f"web-{NODE}"], "it may still be in its manifest"
        assert now[f"other-{NODE}"] != first[f"other-{NODE}"], "this one has been changed"
        assert len(now) == 2
        assert world.user.get(f"web-{NODE}"), "its mirror stays, too"
        web.write_text(manifest("web"))
        await asyncio.sleep(60)
        assert running(world) == now, "the same pod as ever"
        world.runtime.kill_container(world.runtime.running()[0])
        await until(world, lambda: len(running(world)) == 2, 60)
        web.unlink()
        other.unlink()
        await until(world, lambda: not running(world), 60)

    play(scenario, tmp_path, events=events, static=True)


@both
def test_an_invalid_manifest_that_is_then_removed(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        web = world.static_dir / "web.yaml"
        web.write_text(manifest("web"))
        await until(world, lambda: mirror_ready(world, "web"), 60)
        await world.kill()
        web.write_text("")
        world.start()
        await asyncio.sleep(60)
        assert len(running(world)) == 1
        web.unlink()
        await until(world, lambda: not running(world), 60)
        await until(world, lambda: world.user.get(f"web-{NODE}") is None, 60)

    play(scenario, tmp_path, events=events, static=True)


@both
def test_a_manifest_deleted_and_written_anew_restarts_its_pod(tmp_path: Path, events: bool) -> None:
    """The very same pod: it counts as a restart."""

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        web = world.static_dir / "web.yaml"
        web.write_text(manifest("web"))
        await until(world, lambda: mirror_ready(world, "web"), 60)
        web.unlink()
        web.write_text(manifest("web"))
        await until(
            world,
            lambda: (
                mirror_ready(world, "web")
                and status(world, f"web-{NODE}")["containerStatuses"][0]["restartCount"] == 1
            ),
            60,
        )
        assert len(running(world)) == 1
        web.unlink()
        await until(world, lambda: not running(world), 60)

    play(scenario, tmp_path, events=events, static=True)


def refusals(world: World) -> list[JSON]:
    """The events of pods that need a feature that the node does not have."""
    found = [entry.object for _, entry in world.registry.store.entries("events")]
    return [event for event in found if event["reason"] == "PodFeatureUnsupported"]


@both
def test_a_static_pod_never_runs_without_the_options_of_its_mounts(
    tmp_path: Path, events: bool
) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        mount = "{name: v, mountPath: /v, bindMountOptions: [noexec]}"
        restricted = manifest("web").replace("name: c,", f"name: c, volumeMounts: [{mount}],")
        restricted = restricted.replace("]}\n", "], volumes: [{name: v, emptyDir: {}}]}\n")
        (world.static_dir / "web.yaml").write_text(restricted)
        (world.static_dir / "other.yaml").write_text(manifest("other"))
        await until(world, lambda: mirror_ready(world, "other"), 60)
        await until(world, lambda: bool(refusals(world)), 60)
        assert {event["involvedObject"]["name"] for event in refusals(world)} == {f"web-{NODE}"}
        assert refusals(world)[0]["message"].endswith("not available: VolumeBindMountOptions")
        await asyncio.sleep(60)
        assert list(running(world)) == [f"other-{NODE}"]
        for each in world.static_dir.iterdir():
            each.unlink()
        await until(world, lambda: not running(world), 60)

    play(scenario, tmp_path, events=events, static=True)
