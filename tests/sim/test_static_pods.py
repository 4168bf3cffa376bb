"""Static pods whose manifests are broken: the pods that run are not harmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.test_scenarios import both, manifest, play, ready, status, until
from tests.sim.world import World


def mirror_ready(world: World, name: str) -> bool:
    """Whether the API shows a static pod as ready."""
    return ready(world, f"{name}-{NODE}")


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


def shown_end(world: World, name: str) -> tuple[str, str, int]:
    """The uid of a mirror, its phase, and the exit code of its container; -1: it has none."""
    mirror = world.user.get(f"{name}-{NODE}") or {"metadata": {"uid": ""}}
    entries = (mirror.get("status") or {}).get("containerStatuses") or [{}]
    ended = (entries[0].get("state") or {}).get("terminated") or {}
    return (
        mirror["metadata"]["uid"],
        status(world, f"{name}-{NODE}").get("phase", ""),
        (ended.get("exitCode", -1)),
    )


ENDED = {"done": ("doneslow", "Succeeded", 0), "failed": ("failslow", "Failed", 7)}


@pytest.mark.parametrize("how", ["deleted", "deleted at once", "killed", "unreachable"])
@both
def test_the_mirror_of_a_finished_static_pod_comes_back(
    tmp_path: Path, events: bool, how: str
) -> None:
    """With its status, whoever removed it, also while the agent was down."""

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        for name, (what, _, _) in ENDED.items():
            (world.static_dir / f"{name}.yaml").write_text(
                manifest(name, what, "restartPolicy: Never, ")
            )

        def settled(but: dict[str, str]) -> bool:
            return all(
                shown_end(world, name)[1:] == (phase, code)
                and shown_end(world, name)[0] != but.get(name)
                for name, (_, phase, code) in ENDED.items()
            )

        await until(world, lambda: settled({}), 60)
        await asyncio.sleep(20)
        before = {name: shown_end(world, name)[0] for name in ENDED}
        addresses = {name: status(world, f"{name}-{NODE}")["podIP"] for name in ENDED}
        if how == "killed":
            await world.kill()
        if how == "unreachable":
            world.api_down()
        for name in ENDED:
            world.user.delete(f"{name}-{NODE}", grace=None if how == "deleted" else 0)
        if how == "killed":
            world.start()
        if how == "unreachable":
            await asyncio.sleep(60)
            world.api_up()
        assert await until(world, lambda: settled(before), 60) < 60
        assert not running(world)
        after = {name: shown_end(world, name)[0] for name in ENDED}
        await asyncio.sleep(120)
        assert {name: shown_end(world, name)[0] for name in ENDED} == after, "made once"
        if how != "killed":  # nobody has the addresses any more then
            assert {n: status(world, f"{n}-{NODE}")["podIP"] for n in ENDED} == addresses
        for each in world.static_dir.iterdir():
            each.unlink()
        await until(world, lambda: not any(shown_end(world, name)[0] for name in ENDED), 60)

    play(scenario, tmp_path, events=events, static=True)


@both
def test_the_mirror_comes_back_while_a_sync_takes_long(tmp_path: Path, events: bool) -> None:
    """The image is pulled for half a minute."""

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        web = world.static_dir / "web.yaml"
        web.write_text(manifest("web").replace(scripts.LOCAL, scripts.SLOW))
        await until(world, lambda: world.user.get(f"web-{NODE}") is not None, 10)
        world.user.delete(f"web-{NODE}", grace=0)
        await until(world, lambda: world.user.get(f"web-{NODE}") is not None, 10)
        assert not running(world)
        await until(world, lambda: mirror_ready(world, "web"), 120)
        web.unlink()
        await until(world, lambda: not running(world), 60)

    play(scenario, tmp_path, events=events, static=True)


@both
def test_a_rejected_static_pod_has_a_mirror_that_says_so(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        web, name = world.static_dir / "web.yaml", f"web-{NODE}"
        web.write_text(manifest("web", more="nodeSelector: {example.com/disk: fast}, "))
        await until(world, lambda: status(world, name).get("phase") == "Failed", 60)
        first = (world.user.get(name) or {})["metadata"]["uid"]
        world.user.delete(name, grace=0)
        await until(world, lambda: status(world, name).get("phase") == "Failed", 60)
        assert (world.user.get(name) or {})["metadata"]["uid"] != first
        assert not running(world)
        web.unlink()
        await until(world, lambda: world.user.get(name) is None, 60)

    play(scenario, tmp_path, events=events, static=True)
