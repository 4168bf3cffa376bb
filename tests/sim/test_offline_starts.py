"""Starts after a reboot without an API server (--offline-start)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.sim.loop import run
from tests.sim.offline_chaos import tolerating
from tests.sim.user import container, pod
from tests.sim.world import World

STARTS_WITHIN_S = 10.0
"""Beyond a start with the API server, which takes less than a second of virtual time here."""


def world(root: Path, mode: str = "UntilReplaced", **more: Any) -> World:
    return World(1, root, flags={"offline_start": mode}, **more)


async def settle(made: World, *pods: JSON) -> None:
    """Run these pods, and let the record be written."""
    made.start()
    for each in pods:
        made.user.create(each)
    await made.converges(60.0)
    await asyncio.sleep(40.0)


async def cut(made: World, seconds: float, *, clock: float = 0.0) -> None:
    """A power cut for so long, after which the API server is absent."""
    made.api_down()
    made.reboot()
    await made.buried()
    made.runtime.lose_everything()
    await asyncio.sleep(seconds)
    if clock:
        made.set_clock(clock)
    made.start()
    await asyncio.sleep(STARTS_WITHIN_S)


def running(made: World) -> set[str]:
    names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in made.user.pods()}
    return {names.get(each.uid, each.uid) for each in made.runtime.running()}


@pytest.mark.parametrize(
    ("mode", "seconds", "trusted", "started"),
    [
        ("UntilReplaced", 60.0, True, {"web", "daemon"}),
        ("UntilReplaced", 400.0, True, {"daemon"}),
        ("UntilReplaced", 60.0, False, {"daemon"}),
        ("Always", 400.0, False, {"web", "daemon"}),
        ("Never", 60.0, True, set()),
    ],
)
def test_pods_start_that_cannot_have_been_replaced(
    mode: str, seconds: float, trusted: bool, started: set[str], tmp_path: Path
) -> None:
    async def story() -> None:
        made = world(tmp_path, mode)
        await settle(
            made,
            pod("web", [container("c", "run")], tolerations=tolerating()),
            pod("daemon", [container("c", "run")], tolerations=tolerating(None)),
        )
        made.clock_trusted = trusted
        await cut(made, seconds)
        assert running(made) == started
        made.api_up()
        await made.converges(60.0)
        assert running(made) == {"web", "daemon"}
        await made.stop()

    run(story())


def test_power_cuts_one_after_another_delay_no_pod(tmp_path: Path) -> None:
    """The runtime keeps the records of containers, which ended often, but did not crash."""

    async def story() -> None:
        made = world(tmp_path, "Never")
        await settle(made, pod("web", [container("c", "run")]))
        for _ in range(7):
            made.reboot()
            await made.buried()
            await asyncio.sleep(30.0)
            made.start()
            await asyncio.sleep(STARTS_WITHIN_S)
            assert running(made) == {"web"}
            await asyncio.sleep(90.0)
        await made.stop()

    run(story())


def test_a_running_pod_that_the_record_lacks_is_left_alone(tmp_path: Path) -> None:
    """The agent is killed within the time in which changes go into one write."""

    async def story() -> None:
        made = world(tmp_path)
        await settle(made, pod("old", [container("c", "run")]))
        made.user.create(pod("new", [container("c", "run")]))
        await asyncio.sleep(1.5)
        assert running(made) == {"old", "new"}
        made.api_down()
        await made.kill()
        made.start()
        await asyncio.sleep(STARTS_WITHIN_S)
        assert running(made) == {"old", "new"}
        made.api_up()
        await made.converges(60.0)
        await made.stop()

    run(story())


def test_a_pod_deleted_in_the_outage_is_ended_at_contact(tmp_path: Path) -> None:
    async def story() -> None:
        made = world(tmp_path, "Always")
        await settle(
            made, pod("stays", [container("c", "run")]), pod("goes", [container("c", "run")])
        )
        await cut(made, 60.0)
        assert running(made) == {"stays", "goes"}
        made.user.delete("goes", 0)
        uids = {each["metadata"]["uid"] for each in made.user.pods()}
        made.api_up()
        waited = 0.0
        while {each.uid for each in made.runtime.running()} - uids:
            await asyncio.sleep(0.1)
            waited += 0.1
        assert waited < 9.0, "a wait between two attempts, a list, and the end of the container"
        await made.converges(60.0)
        await made.stop()

    run(story())
