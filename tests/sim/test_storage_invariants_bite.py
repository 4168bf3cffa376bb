"""The judges of volumes are judged: an agent that is broken on purpose must be found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import NodePods
from kubeletpy.volumes import volume_manager
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.model import Published
from kubeletpy.volumes.csi import csi_plugin, objects
from kubeletpy.volumes.csi.objects import MountPaths
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files.paths import PodPaths
from kubeletpy.volumes.node import node_volumes as manager
from kubeletpy.volumes.operations import plan as planning
from kubeletpy.volumes.operations.model import Operation, OperationKind, OperationsPlan, Presence
from kubeletpy.volumes.pod_volumes.set_up import unmount_inside
from tests.sim.csi_drivers import DATA
from tests.sim.history import Violation
from tests.sim.loop import run
from tests.sim.storage_chaos import pod_with, problems, remains, set_out
from tests.sim.world import World

Breaker = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[World], Awaitable[None]]
WITHIN = 300.0

ALL_KINDS = ("stager-0", "stager-sole", "stager-block", "plain-0")


async def _nothing(*args: Any, **options: Any) -> None:
    return None


# -- what is broken --------------------------------------------------------------------------------


def volumes_of_running_pods_are_taken_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodePods, "existing", property(lambda found: frozenset()))
    patch.setattr(
        "kubeletpy.syncloop.housekeeping.Remains.needs_directory", lambda self, uid: False
    )
    patch.setattr(manager.NodeVolumes, "release_orphan", _release_at_once)


def _release_at_once(self: Any, uid: str) -> None:
    self._end_orphan(self.claims, uid)


def volumes_are_unstaged_while_published(patch: pytest.MonkeyPatch) -> None:
    right = planning.plan

    def wrong(demands: Any, actual: Any, facts: Any, now: float) -> OperationsPlan:
        plan = right(demands, actual, facts, now)
        extra = [
            Operation(
                OperationKind.UNSTAGE, name, each.plugin, "broken on purpose", staged=each.staged
            )
            for name, each in actual.items()
            if each.device is Presence.THERE and each.pods and not facts.running
        ]
        return replace(plan, operations=(*plan.operations, *extra))

    patch.setattr(volume_manager, "plan", wrong)
    patch.setattr(disk, "other_references", lambda path, suffix: [])


def volumes_stay_staged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(csi_plugin.CsiPlugin, "unstage", _nothing)


def volumes_stay_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(csi_plugin.CsiPlugin, "unpublish", _nothing)


def loop_devices_are_kept(patch: pytest.MonkeyPatch) -> None:
    def wrong(bound: str) -> None:
        disk.force_unmount(bound)
        disk.remove_target(bound)

    patch.setattr(disk, "release_device", wrong)


def all_volumes_have_one_place(patch: pytest.MonkeyPatch) -> None:
    def filesystem(self: Any, uid: str, name: str) -> MountPaths:
        return MountPaths(f"{self.pods}/{uid}/volumes/{objects.DIRECTORY}/pv-stager-0", "mount")

    patch.setattr(objects.CsiPaths, "filesystem", filesystem)


def data_is_deleted_at_the_end(patch: pytest.MonkeyPatch) -> None:
    right = csi_plugin.CsiPlugin.unpublish

    def delete(path: str) -> None:
        (Path(path) / DATA).unlink(missing_ok=True)

    async def wrong(self: Any, left: Any) -> None:
        await asyncio.to_thread(delete, left.path)
        await right(self, left)

    patch.setattr(csi_plugin.CsiPlugin, "unpublish", wrong)


def parts_are_unmounted_at_each_sync(patch: pytest.MonkeyPatch) -> None:
    right = manager.NodeVolumes.set_up

    async def wrong(self: Any, pod: Any) -> Any:
        paths = PodPaths(self._pods_dir, pod.uid)
        unmount_inside(paths, self.claims.state.paths(pod.uid))
        return await right(self, pod)

    patch.setattr(manager.NodeVolumes, "set_up", wrong)


def sole_users_are_not_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "SOLE_MODE", ("Nobody",))


def volumes_are_not_published(patch: pytest.MonkeyPatch) -> None:
    async def wrong(self: Any, spec: Any, attachment: Any, use: Any, *, remount: bool) -> Published:
        path = self.published(spec, use.uid).path
        await asyncio.to_thread(disk.make_directory, path)
        return Published(path)

    patch.setattr(csi_plugin.CsiPlugin, "publish", wrong)


# -- what happens ----------------------------------------------------------------------------------


async def runs(world: World) -> None:
    world.user.create(pod_with("a", ALL_KINDS, parts=["stager-0"]))
    await world.converges(WITHIN, lambda: problems(world))
    await asyncio.sleep(10)


async def goes_on(world: World) -> None:
    """Let the pod be synced again, and start the agent anew."""
    await runs(world)
    container = world.runtime.running()[0]
    world.runtime.kill_container(container)
    await asyncio.sleep(60)
    await world.kill()
    world.start()
    await asyncio.sleep(60)
    world.history.check()


async def is_deleted(world: World) -> None:
    await runs(world)
    world.user.delete("a")
    await world.converges(WITHIN, lambda: remains(world))


async def another_pod_uses_it(world: World) -> None:
    world.user.create(pod_with("a", ["stager-sole"]))
    await world.converges(WITHIN, lambda: problems(world))
    world.user.create(pod_with("b", ["stager-sole"]))
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("breaker", "story", "verdict"),
    [
        (volumes_of_running_pods_are_taken_down, goes_on, "unpublished under|unmounted under"),
        (volumes_are_unstaged_while_published, runs, "unstaged while published"),
        (volumes_stay_staged, is_deleted, "is staged"),
        (volumes_stay_published, is_deleted, "the agent unmounted"),
        (loop_devices_are_kept, is_deleted, "is held by a loop device"),
        (all_volumes_have_one_place, runs, "published over"),
        (data_is_deleted_at_the_end, is_deleted, "was deleted"),
        (parts_are_unmounted_at_each_sync, goes_on, "unmounted under"),
        (sole_users_are_not_alone, another_pod_uses_it, "for one pod and published"),
        (volumes_are_not_published, runs, "started without its volume"),
    ],
)
def test_a_broken_agent_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaker: Breaker, story: Story, verdict: str
) -> None:
    breaker(monkeypatch)
    with pytest.raises(Violation, match=verdict):
        run(_lives(tmp_path, story))


@pytest.mark.parametrize("story", [goes_on, is_deleted, another_pod_uses_it])
def test_a_sound_agent_is_not(tmp_path: Path, story: Story) -> None:
    run(_lives(tmp_path, story))


async def _lives(root: Path, story: Story) -> None:
    world = World(1, root, storage=True)
    with world.mounts.in_place():
        set_out(world)
        world.start()
        await story(world)
        world.history.check()
