"""Components of an agent: their start order, their signals, and closing in reverse order."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.agent.agent import READY_S, STOP_S, Agent
from kubeletpy.agent.context import AgentSignal, Component, Task, after
from tests.kit.virtual_time import settle

pytestmark = pytest.mark.virtual_time


class Notes:
    """Log of what a few components did."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def component(self, name: str, *, closes_in: float = 0.0) -> Component:
        async def start() -> None:
            self.seen.append(f"{name} starts")

        async def run() -> None:
            self.seen.append(f"{name} runs")
            await asyncio.Event().wait()

        async def close() -> None:
            await asyncio.sleep(closes_in)
            self.seen.append(f"{name} closes")

        return Component(name, (Task(name, run),), start=start, close=close)


async def test_components_start_in_order_and_close_in_reverse() -> None:
    notes = Notes()
    agent = Agent(
        [notes.component("cellar"), Component("idle", close=lambda: None), notes.component("roof")]
    )
    await agent.start()
    task = asyncio.ensure_future(agent.run())
    await settle()
    task.cancel()
    await asyncio.wait([task])
    verbs = ["starts", "runs", "closes"]
    expected = [f"{component} {verb}" for verb in verbs[:2] for component in ("cellar", "roof")]
    assert notes.seen == [*expected, "roof closes", "cellar closes"]
    await agent.close()
    assert len(notes.seen) == 6, "closed once"


@pytest.mark.parametrize(
    ("ready_at", "begins_at"),
    [(0.0, 0.0), (0.5, 0.5), (60.0, READY_S), (None, 0.0)],
    ids=["at once", "soon", "not yet", "no API"],
)
async def test_late_tasks_begin_when_the_node_is_ready_or_soon_after(
    ready_at: float | None, begins_at: float
) -> None:
    loop, seen = asyncio.get_running_loop(), dict[str, float]()

    def task(name: str, late: bool) -> Task:
        async def run() -> None:
            seen[name] = loop.time()

        return Task(name, run, late)

    ready = None if ready_at is None else asyncio.Event()
    if ready is not None and ready_at is not None:
        loop.call_later(ready_at, ready.set)
    await Agent([Component("x", (task("late", True), task("early", False)))], ready).run()
    assert list(seen.items()) == [("early", 0.0), ("late", begins_at)]


async def test_a_component_that_does_not_close_delays_the_exit_by_a_bounded_time() -> None:
    notes = Notes()
    agent = Agent([notes.component("cellar"), notes.component("roof", closes_in=60)])
    await agent.close()
    assert asyncio.get_running_loop().time() == STOP_S
    assert notes.seen == []


async def test_components_after_one_that_does_not_close_begin_to_close() -> None:
    notes = Notes()

    async def close() -> None:
        notes.seen.append("server begins")
        await asyncio.sleep(60)

    idle = Component("idle", close=lambda: notes.seen.append("idle closes"))
    stuck = notes.component("roof", closes_in=60)
    await Agent([Component("server", close=close), idle, stuck]).close()
    assert asyncio.get_running_loop().time() == STOP_S
    assert notes.seen == ["idle closes", "server begins"]


async def test_a_task_that_fails_ends_the_agent() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    notes = Notes()
    agent = Agent([notes.component("cellar"), Component("roof", (Task("roof", broken),))])
    with pytest.raises(ExceptionGroup):
        await agent.run()
    assert notes.seen == ["cellar runs", "cellar closes"]


async def test_a_task_may_wait_for_an_event() -> None:
    seen, event = [], asyncio.Event()

    async def run() -> None:
        seen.append("runs")

    task = asyncio.ensure_future(after(event, run)())
    await settle()
    assert seen == []
    event.set()
    await task
    assert seen == ["runs"]


def test_components_are_found_by_type() -> None:
    agent = Agent([Component("a name"), Component(7)])
    assert agent.component(int) == 7
    assert agent.find(float) is None
    with pytest.raises(LookupError, match="no float"):
        agent.component(float)


def test_a_signal_notifies_listeners_in_order() -> None:
    seen: list[str] = []
    signal: AgentSignal[[str]] = AgentSignal()
    signal("nobody listens")
    signal.connect(lambda uid: seen.append(f"first {uid}"), lambda uid: seen.append(f"then {uid}"))
    signal("a")
    assert seen == ["first a", "then a"]
    with pytest.raises(AssertionError, match="one place"):
        signal.connect(seen.append)
