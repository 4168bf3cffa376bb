"""Unhealthy pods of a simulated node, and how ``kubeletpy explain`` describes them.

Four questions each: what is wrong, since when, what does it wait for, what is to be done. The agent
makes the facts itself: a trouble brings its world into a state.
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, field
from kubeletpy.metrics.trace.model import PodTrace
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.gather import explain, explain_timeline
from kubeletpy.observe.explain.model import PodExplanation
from kubeletpy.observe.explain.snapshot import Snapshots
from kubeletpy.observe.explain.stuck import StuckPods
from tests.sim.loop import run
from tests.sim.world import World

NAME = "web"
"""The pod of every trouble."""
LASTS = 90.0
"""Seconds between the start of a trouble and the question: long enough that "now" is wrong."""
EARLY_S, LATE_S = 1.5, 4.0
"""How far from the truth a time may be: the API's times are whole seconds."""
Make = Callable[[World], Awaitable[float]]


class Trouble(Struct, frozen=True):
    """A trouble; its row of troubles.csv has the answers.

    Attributes:
        make: brings the world into the trouble; returns when it began (Unix seconds).
        drawn: parts of its timeline.
        lasts: seconds between its start and the question.
    """

    name: str
    make: Make
    drawn: tuple[str, ...] = ()
    lasts: float = LASTS
    seed: int = 1
    options: JSON = field(default_factory=dict)
    settings: JSON = field(default_factory=dict)


class Answers(Struct, frozen=True):
    """A row of troubles.csv; in texts, T stands for a duration.

    Attributes:
        waits: kind and subject of the first wait; empty: there is none.
    """

    trouble: str
    cause: str
    waits: str
    verdict: str
    hint: str


def answers() -> dict[str, Answers]:
    """The rows of troubles.csv by name."""
    with Path(__file__).with_name("troubles.csv").open(encoding="utf-8", newline="") as file:
        return {row["trouble"]: Answers(**row) for row in csv.DictReader(file)}


class Played(Struct, frozen=True):
    """How explain describes a trouble, and its timeline; ``began`` in Unix seconds."""

    found: PodExplanation
    timeline: str
    began: float


def play_trouble(trouble: Trouble, root: Path) -> Played:
    """Play a trouble, and have it explained."""

    async def main() -> Played:
        world = World(trouble.seed, root, settings=trouble.settings, **trouble.options)
        world.start()
        await asyncio.sleep(5)
        began = await trouble.make(world)
        await asyncio.sleep(trouble.lasts)
        assert world.agent is not None
        snapshots: Snapshots = world.agent.component(StuckPods).facts.__self__  # type: ignore[attr-defined]
        uid = snapshots.find("default", NAME)
        assert uid is not None
        facts, now = snapshots.facts(uid), asyncio.get_running_loop().time()
        found = explain(facts)
        trace = facts.trace or PodTrace(uid, "default", NAME, now)
        drawn = render.text(explain_timeline(facts, trace, snapshots.seen_at(uid), now))
        await world.kill()
        return Played(found, drawn, began)

    return run(main())  # type: ignore[no-any-return]


def without_times(text: str) -> str:
    """The text with T in place of durations."""
    return re.sub(r"\b(?:\d+(?:\.\d+)?[dhms])+\b", "T", text)
