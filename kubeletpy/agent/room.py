"""What the agent knows about each of its components: its tasks, and when else to call it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kubeletpy.pods.node_pods import NodePods
from kubeletpy.structs import Struct

Run = Callable[[], Coroutine[Any, Any, None]]


class Task(Struct, frozen=True):
    """Something that runs as long as the agent does; if it fails, the agent ends."""

    name: str
    run: Run


class Room(Struct, frozen=True):
    """What the agent needs to know about a component (:func:`kubeletpy.agent.build.build`).

    Whatever a component does not need stays None.
    """

    made: object
    """The room itself, for those who look inside an agent (tests, ``kubeletpy up``)."""
    tasks: tuple[Task, ...] = ()
    start: Callable[[], Awaitable[Any]] | None = None
    """Awaited before any task runs, in room order; may raise if the agent can't run."""
    keep: Callable[[NodePods], None] | None = None
    """Called by housekeeping with the existing pods; state of others may be dropped. Must not
    block."""
    close: Callable[[], Awaitable[None] | None] | None = None
    """Called when the agent ends, last component first; also if it was not started."""


def after(event: asyncio.Event, run: Run) -> Run:
    """A task that starts once an event is set."""

    async def wait_and_run() -> None:
        await event.wait()
        await run()

    return wait_and_run
