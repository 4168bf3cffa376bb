"""What the agent knows of each of its rooms: its tasks, and when else it wants to be called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from kubeletpy.pods.node_pods import NodePods

Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Task:
    """Something that runs for as long as the agent; if it fails, the agent ends."""

    name: str
    run: Run


@dataclass(frozen=True, slots=True)
class Room:
    """What the agent has to know of a room (:func:`kubeletpy.agent.build.build`).

    Whatever a room does not need stays None.
    """

    made: object
    """The room itself, for who looks into an agent (tests, ``kubeletpy up``)."""
    tasks: tuple[Task, ...] = ()
    start: Callable[[], Awaitable[Any]] | None = None
    """Awaited before any task runs, in the order of the rooms; may raise why there can't be an
    agent."""
    keep: Callable[[NodePods], None] | None = None
    """Called by housekeeping with the pods there are; nothing need be kept of others. Must not
    block."""
    close: Callable[[], Awaitable[None] | None] | None = None
    """Called when the agent ends, last room first; also of a room that was not started."""


def after(event: asyncio.Event, run: Run) -> Run:
    """A task that begins when an event has come."""

    async def wait_and_run() -> None:
        await event.wait()
        await run()

    return wait_and_run
