"""A component of the agent: its tasks, and its functions that the agent calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.pods.node_pods import NodePods

Run = Callable[[], Coroutine[Any, Any, None]]


class Task(Struct, frozen=True):
    """Something that runs as long as the agent does; if it fails, the agent ends."""

    name: str
    run: Run
    late: bool = False
    """It begins when the node is Ready, or soon: it makes no node Ready."""


class Component(Struct, frozen=True):
    """One object of a running agent (:func:`kubeletpy.agent.build.build`) and its hooks.

    Hooks that a component does not need are None.
    """

    instance: object
    """The object itself; tests and ``kubeletpy up`` find it by its type."""
    tasks: tuple[Task, ...] = ()
    start: Callable[[], Awaitable[Any]] | None = None
    """Awaited before any task runs, in component order; may raise if the agent can't run."""
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
