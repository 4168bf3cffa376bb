"""Volumes in memory are resized under agents that die: never unasked, and never forgotten."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.mount_table import MountPoint
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE
from kubeletpy.resources.cgroups.setup import KernelFacts
from kubeletpy.volumes.files.disk import MS_REMOUNT
from tests.sim.chaos import EMPTY_WITHIN
from tests.sim.loop import run
from tests.sim.test_scenarios import status, until
from tests.sim.user import container, pod, resources
from tests.sim.world import World

MI = 1 << 20


class Tmpfs:
    """The file systems in memory of a node, by mount point."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.used = 0
        self.remounts = 0

    def mount(self, source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
        size = int(data.partition(",")[0].removeprefix("size="))
        if flags & MS_REMOUNT:
            self.remounts += 1
            if size < self.used:
                raise OSError(errno.EINVAL, "Invalid argument", target)
        self.sizes[target] = size

    def unmount(self, target: str) -> None:
        del self.sizes[target]

    def table(self, containing: str = "") -> list[MountPoint]:
        return [MountPoint(path, shared=False, root="/") for path in self.sizes]

    @property
    def size(self) -> int:
        """The size of the only one, in MiB; 0: there is none."""
        return next(iter(self.sizes.values()), 0) // MI

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the agent's calls made here."""
        calls = {
            "files.disk.mount": self.mount,
            "files.disk.is_mount_point": self.sizes.__contains__,
            "pod_volumes.set_up._bytes_used": lambda directory: self.used,
            "files.disk.unmount": self.unmount,
            "files.disk.table": self.table,
        }
        with ExitStack() as stack:
            for name, call in calls.items():
                stack.enter_context(patch(f"kubeletpy.volumes.{name}", call))
            facts = KernelFacts(apparmor=True, cgroup_v2=True)
            stack.enter_context(patch("tests.sim.world.KernelFacts", lambda **_: facts))
            yield


def conditions(world: World) -> dict[str, str]:
    """The conditions of a resize that the API shows, with their reasons."""
    return {
        each["type"]: each.get("reason", "")
        for each in status(world, "a").get("conditions") or ()
        if "Resize" in each["type"]
    }


def sized(size: str) -> JSON:
    mounts = [{"name": "v", "mountPath": "/v"}]
    one = container("c", "run", resources=resources("1", "200Mi"), volumeMounts=mounts)
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return pod("a", [one], volumes=volumes)


@contextmanager
def gated(root: Path) -> Iterator[tuple[World, Tmpfs]]:
    """A world whose agent and API server have the gate on."""
    tmpfs = Tmpfs()
    world = World(1, root, settings={"featureGates": {MEMORY_VOLUMES_GATE: True}})
    world.registry.feature_gates = frozenset({MEMORY_VOLUMES_GATE})
    with tmpfs.in_place():
        yield world, tmpfs


@pytest.mark.parametrize("dead", [False, True], ids=["agent alive", "agent dead"])
def test_a_size_is_applied_once_and_kept_by_the_next_agents(tmp_path: Path, dead: bool) -> None:
    async def story() -> None:
        with gated(tmp_path) as (world, tmpfs):
            world.start()
            world.user.create(sized("64Mi"))
            await world.converges(30)
            assert (tmpfs.size, tmpfs.remounts) == (64, 0)
            if dead:
                await world.kill()
            world.user.resize_volume("a", 0, "128Mi")
            if dead:
                world.start()
            await until(world, lambda: tmpfs.size == 128)
            await until(world, lambda: not conditions(world))
            for _ in range(2):
                await world.kill()
                world.start()
                await world.converges(30)
            assert (tmpfs.size, tmpfs.remounts) == (128, 1)
            assert status(world, "a")["containerStatuses"][0]["restartCount"] == 0
            world.user.delete("a")
            await world.converges(EMPTY_WITHIN, world.remains)
            assert tmpfs.sizes == {}
            await world.stop()
            world.history.check()

    run(story())


def test_a_shrink_below_the_use_waits_for_the_use_also_over_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        with gated(tmp_path) as (world, tmpfs):
            world.start()
            world.user.create(sized("64Mi"))
            await world.converges(30)
            tmpfs.used = 50 * MI
            world.user.resize_volume("a", 0, "32Mi")
            await until(world, lambda: conditions(world) == {"PodResizeInProgress": "Error"})
            await world.kill()
            world.start()
            await asyncio.sleep(120)
            assert conditions(world) == {"PodResizeInProgress": "Error"}
            assert tmpfs.size == 64
            tmpfs.used = MI
            await until(world, lambda: tmpfs.size == 32)
            await until(world, lambda: not conditions(world))
            await world.stop()
            world.history.check()

    run(story())
