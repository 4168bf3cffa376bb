"""Unhealthy pods of a simulated node, and whether ``kubeletpy explain`` explains them.

Four questions each: what is wrong, since when, what does it wait for, what is to be done. The agent
makes the facts itself: a trouble brings its world into a state, and the judge reads only what the
command would show. The expectations contain what an operator needs; they are not derived from the
texts of explain.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, field
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.gather import explain
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
QUESTIONS = ("what", "since", "waits", "to do")


class Trouble(Struct, frozen=True, kw_only=True):
    """A trouble and what an operator needs to read.

    Attributes:
        make: brings the world into the trouble; returns when it began (Unix seconds).
        what: patterns that the first line must match, all of them: the objects and the problem.
        waits: patterns of what ends it, in the table of waits or the first line; empty: nothing
            does, and explain must show that it is final.
        todo: patterns of the next step.
        wrong: patterns that the next step must not match: advice that leads astray.
        lasts: seconds between its start and the question.
    """

    name: str
    kind: str
    make: Callable[[World], Awaitable[float]]
    what: tuple[str, ...]
    waits: tuple[str, ...] = ()
    todo: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    lasts: float = LASTS
    seed: int = 1
    options: JSON = field(default_factory=dict)
    settings: JSON = field(default_factory=dict)


class Answers(Struct, frozen=True):
    """Text of explain, and the questions that it did not answer."""

    trouble: Trouble
    text: str
    missed: dict[str, str]
    """Question -> what was expected and what was there."""

    @property
    def points(self) -> int:
        """Number of answered questions, at most four."""
        return len(QUESTIONS) - len(self.missed)


def play_trouble(trouble: Trouble, root: Path) -> Answers:
    """Play a trouble and judge how explain describes it."""

    async def main() -> Answers:
        world = World(trouble.seed, root, settings=trouble.settings, **trouble.options)
        world.start()
        await asyncio.sleep(5)
        began = await trouble.make(world)
        await asyncio.sleep(trouble.lasts)
        found = explained(world, NAME)
        answers = judge(trouble, found, began)
        await world.kill()
        return answers

    return run(main())  # type: ignore[no-any-return]


def explained(world: World, name: str) -> PodExplanation:
    """The agent's explanation of a pod of the default namespace."""
    assert world.agent is not None
    snapshots: Snapshots = world.agent.component(StuckPods)._facts.__self__  # type: ignore[attr-defined]
    uid = snapshots.find("default", name)
    assert uid is not None, name
    return explain(snapshots.facts(uid))


def judge(trouble: Trouble, found: PodExplanation, began: float) -> Answers:
    """Compare an explanation with what the trouble expects."""
    missed: dict[str, str] = {}
    view: dict[str, Any] = to_builtins(found)
    text = render.pod(view)
    if lacking := _lacking(trouble.what, found.verdict):
        missed["what"] = f"{lacking} not in {found.verdict!r}"
    if found.first_seen is None or not -EARLY_S <= found.first_seen - began <= LATE_S:
        off = "unknown" if found.first_seen is None else f"{found.first_seen - began:+.1f} s"
        missed["since"] = off
    reported = "\n".join([found.verdict, *(f"{w.kind} {w.subject} {w.why}" for w in found.waits)])
    if trouble.waits:
        if found.final or (lacking := _lacking(trouble.waits, reported)):
            missed["waits"] = "shown as final" if found.final else f"{lacking} not in {reported!r}"
    elif not found.final:
        missed["waits"] = "not shown as final"
    misled = [each for each in trouble.wrong if re.search(each, found.hint, re.I)]
    if misled or (lacking := _lacking(trouble.todo, found.hint)):
        missed["to do"] = f"{misled or lacking} in {found.hint!r}"
    return Answers(trouble, text, missed)


def _lacking(patterns: tuple[str, ...], text: str) -> list[str]:
    return [each for each in patterns if not re.search(each, text, re.I)]
