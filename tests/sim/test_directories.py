"""When the directories of pods go: not before their worker is done with them, and then at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.volumes.node.node_volumes import NodeVolumes
from tests.sim.test_endings import until
from tests.sim.test_scenarios import play
from tests.sim.user import container, pod
from tests.sim.world import World


def test_a_sweep_waits_for_volumes_that_take_long_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod that was deleted without grace is unknown to the API while its volumes go."""
    real = NodeVolumes.tear_down
    going: list[str] = []

    async def slow(self: NodeVolumes, pod_uid: str) -> None:
        going.append(pod_uid)
        await asyncio.sleep(30)
        await real(self, pod_uid)

    async def scenario(world: World) -> None:
        uses = [{"name": "v", "mountPath": "/v"}]
        made = container("c", "run", volumeMounts=uses)
        world.user.create(pod("slow", [made], volumes=[{"name": "v", "emptyDir": {}}]))
        obj = world.user.get("slow")
        assert obj is not None
        directory = world.root / "kubelet" / "pods" / obj["metadata"]["uid"]
        volume = directory / "volumes" / "kubernetes.io~empty-dir" / "v"
        await until(world, lambda: volume.is_dir() and world.runtime.running(), 10)
        monkeypatch.setattr(NodeVolumes, "tear_down", slow)
        world.user.delete("slow", 0)
        await until(world, lambda: going, 60)
        world.user.create(pod("other", [container("c", "run")]))
        await asyncio.sleep(10)
        assert volume.is_dir()
        monkeypatch.setattr(NodeVolumes, "tear_down", real)
        await until(world, lambda: not directory.exists(), 40)

    play(scenario, tmp_path)
    assert not [r for r in caplog.records if "directory of a removed pod" in r.message]
