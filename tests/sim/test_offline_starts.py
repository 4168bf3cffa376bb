"""Starts after a reboot without an API server (--offline-start)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.sim.loop import run
from tests.sim.user import container, pod
from tests.sim.world import World

TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
STARTS_WITHIN_S = 20.0


def tolerating(seconds: int | None = 300) -> list[JSON]:
    """Tolerations as the control plane adds them; None: as a DaemonSet's pods have them."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", **limit} for key in TAINTS]


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
