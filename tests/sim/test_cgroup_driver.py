"""A runtime whose cgroup driver differs from the agent's: the node reports it until it is fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.resources.cgroups.values import CgroupDriver
from tests.sim.api import NODE
from tests.sim.test_scenarios import EMPTY_WITHIN, play, until
from tests.sim.user import container, pod
from tests.sim.world import World

CGROUPFS, SYSTEMD = CgroupDriver.CGROUPFS, CgroupDriver.SYSTEMD


def ready(world: World) -> dict[str, Any]:
    """The node's Ready condition."""
    node = world.registry.find("nodes", "", NODE) or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), {})


def events(world: World) -> list[str]:
    """Messages of the events about a mismatch."""
    found = [entry.object for _, entry in world.registry.store.entries("events")]
    return [
        event["message"]
        for event in found
        if (event["involvedObject"]["kind"], event["reason"]) == ("Node", "CgroupDriverMismatch")
    ]


async def is_ready(world: World) -> None:
    await until(world, lambda: ready(world).get("status") == "True")


async def is_not_ready(world: World, remedy: str) -> None:
    await until(world, lambda: ready(world).get("status") == "False")
    message = ready(world)["message"]
    assert message.startswith("cgroup driver mismatch: ")
    assert remedy in message
    await until(world, lambda: events(world) == [message])


@pytest.mark.parametrize("driver", CgroupDriver)
def test_no_mismatch_is_reported_when_both_agree(tmp_path: Path, driver: CgroupDriver) -> None:
    async def scenario(world: World) -> None:
        await is_ready(world)
        for name in ("a", "b"):
            world.user.create(pod(name, [container("c", "run")]))
        await world.converges(30)
        assert ready(world)["status"] == "True"
        assert events(world) == []

    play(scenario, tmp_path, cgroup_driver=driver)


def test_a_runtime_on_cgroupfs_makes_the_node_not_ready(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert world.kernel is not None
        world.kernel.runtime = CGROUPFS
        await is_ready(world)
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(30)
        await is_not_ready(world, '"SystemdCgroup = true" in containerd\'s configuration')
        # the runtime is configured and started again: the node is Ready, and stays so
        world.runtime_down()
        world.kernel.runtime = SYSTEMD
        world.runtime_up()
        await is_ready(world)
        world.user.create(pod("b", [container("c", "run")]))
        await world.converges(30)
        assert ready(world)["status"] == "True"
        assert len(events(world)) == 1

    play(scenario, tmp_path, cgroup_driver=SYSTEMD)


def test_a_runtime_on_systemd_makes_the_node_not_ready(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert world.kernel is not None
        world.kernel.runtime = SYSTEMD
        await is_ready(world)
        world.user.create(pod("a", [container("c", "run")]))
        await is_not_ready(world, 'set "cgroupDriver: systemd" there')
        # the agent is configured and started again
        world.die()
        world.kernel.agent = SYSTEMD
        world.start()
        await is_ready(world)
        await world.converges(60)
        assert ready(world)["status"] == "True"

    play(scenario, tmp_path, cgroup_driver=CGROUPFS)


def test_the_mismatch_ends_with_a_sandbox_in_its_cgroup(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert world.kernel is not None
        world.kernel.runtime = SYSTEMD
        world.user.create(pod("a", [container("c", "run")]))
        await is_not_ready(world, "cgroupDriver")
        world.kernel.runtime = CGROUPFS
        await world.converges(EMPTY_WITHIN)
        await is_ready(world)

    play(scenario, tmp_path, cgroup_driver=CGROUPFS)
