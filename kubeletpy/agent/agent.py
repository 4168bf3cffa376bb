"""One node agent: starts, runs and closes its components in order.

The same agent runs on a node and on virtual time. Must never decide anything about a pod, nor know
what a component is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import TypeVar

from kubeletpy.agent.room import Room, Task

log = logging.getLogger(__name__)

STOP_S = 3.0
"""How long a stopping agent waits for calls in flight."""

T = TypeVar("T")


class Agent:
    """:func:`kubeletpy.agent.build.build` makes it."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.rooms = tuple(rooms)
        self._closed = False

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in room order."""
        return tuple(task for room in self.rooms for task in room.tasks)

    def room(self, kind: type[T]) -> T:
        """The room of that type. Raises LookupError if there is none."""
        found = self.find(kind)
        if found is None:
            raise LookupError(f"this agent has no {kind.__name__}")
        return found

    def find(self, kind: type[T]) -> T | None:
        """The room of that type, if there is one."""
        return next((room.made for room in self.rooms if isinstance(room.made, kind)), None)

    async def start(self) -> None:
        """Start the components in order; an error of one states why the agent can't run."""
        for room in self.rooms:
            if room.start is not None:
                await room.start()

    async def run(self) -> None:
        """Run until cancelled; containers keep running without us."""
        try:
            async with asyncio.TaskGroup() as group:
                for task in self.tasks:
                    group.create_task(task.run(), name=task.name)
        finally:
            await self.close()

    async def close(self) -> None:
        """Shut down within STOP_S; the next start picks up whatever is unfinished."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(STOP_S):
                for room in reversed(self.rooms):
                    closing = None if room.close is None else room.close()
                    if inspect.isawaitable(closing):
                        await closing
        except TimeoutError:
            log.info("stopped with calls in progress")
