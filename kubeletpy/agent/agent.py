"""One node agent: starts, runs and closes its components in order.

The same agent runs on a node and on virtual time. Must never decide anything about a pod, nor
depend on what a component is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from kubeletpy.agent.component import Component, Task

log = logging.getLogger(__name__)

STOP_S = 3.0
"""How long a stopping agent waits for calls in flight."""
READY_S = 2.0
"""How long late tasks wait for the node to be Ready: a node that is not has them, too."""

T = TypeVar("T")


class Agent:
    """:func:`kubeletpy.agent.build.build` makes it."""

    def __init__(self, components: Sequence[Component], ready: asyncio.Event | None = None) -> None:
        """``ready``: set when the API shows the node as Ready; None: there is no API."""
        self.components = tuple(components)
        self._ready = ready
        self._closed = False

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in component order."""
        return tuple(task for component in self.components for task in component.tasks)

    def component(self, kind: type[T]) -> T:
        """The component's object of that type. Raises LookupError if there is none."""
        found = self.find(kind)
        if found is None:
            raise LookupError(f"this agent has no {kind.__name__}")
        return found

    def find(self, kind: type[T]) -> T | None:
        """The object of that type, if there is one."""
        return next(
            (
                component.instance
                for component in self.components
                if isinstance(component.instance, kind)
            ),
            None,
        )

    async def start(self) -> None:
        """Start the components in order; an error of one states why the agent can't run."""
        for component in self.components:
            if component.start is not None:
                await component.start()

    async def run(self) -> None:
        """Run until cancelled; containers keep running without us."""
        try:
            async with asyncio.TaskGroup() as group:
                for task in self.tasks:
                    if not task.late:
                        group.create_task(task.run(), name=task.name)
                await self._until_ready()
                for task in self.tasks:
                    if task.late:
                        group.create_task(task.run(), name=task.name)
        finally:
            await self.close()

    async def _until_ready(self) -> None:
        if self._ready is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(READY_S):
                    await self._ready.wait()

    async def close(self) -> None:
        """Shut down within STOP_S; the next start picks up whatever is unfinished.

        Each component at least begins to close: a gRPC server that was not stopped raises from its
        destructor after the end of the event loop.
        """
        if self._closed:
            return
        self._closed = True
        left = list(self.components)
        try:
            async with asyncio.timeout(STOP_S):
                while left:
                    await _close(left.pop())
        except TimeoutError:
            log.info("stopped with calls in progress")
        while left:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await _close(left.pop())


async def _close(component: Component) -> None:
    closing = None if component.close is None else component.close()
    if inspect.isawaitable(closing):
        await closing
