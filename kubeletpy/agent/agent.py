"""One node agent: starts, runs and closes its components in order, and combines their health.

The same agent runs on a node and on virtual time. It does not depend on the kinds of components.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from kubeletpy.agent.context import Component, Task
from kubeletpy.base import structs
from kubeletpy.base.tasks import wait_within
from kubeletpy.node.build import NodeHealth
from kubeletpy.node.runtime import RuntimeMonitor
from kubeletpy.node.shutdown.shutdown_manager import ShutdownManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import RelistHealth

log = logging.getLogger(__name__)

STOP_S = 3.0
"""How long a stopping agent waits for calls in flight."""
READY_S = 2.0
"""How long late tasks wait for the node to be Ready: a node that is not has them, too."""

T = TypeVar("T")


class Agent(structs.Component):
    """A node agent, which :func:`kubeletpy.agent.build.build` builds."""

    components: Sequence[Component]
    # Set when the API shows the node as Ready; None: there is no API.
    ready: asyncio.Event | None = None

    def __post_init__(self) -> None:
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
        if self.ready is not None:
            await wait_within(self.ready, READY_S)

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


# Health, combined from the components: reasons that hold pods back, and Ready.

PASS_OVERDUE_S = 300.0
"""Without a housekeeping pass for this long (or two sync periods) the sync loop is unhealthy."""


class AgentHealth(structs.Component):
    """Combines the health of runtime, PLEG, storage and shutdown."""

    monitor: RuntimeMonitor
    relists: RelistHealth
    cache: PodStatusCache
    shutdown: ShutdownManager
    # The pressure conditions that are true.
    pressures: Callable[[], tuple[str, ...]]
    # Why the node is not ready for volumes yet; empty: it is.
    storage: Callable[[], str] = lambda: ""
    # Why limits of pods do not hold. Pods are synced nevertheless, since only a new sandbox shows
    # that it is over.
    cgroups: Callable[[], str] = lambda: ""

    def runtime_error(self) -> str:
        """Why pods can't be synced now; empty when they can."""
        error = self.monitor.runtime_error()
        if not error and (pleg := self.relists.error()):
            error = f"PLEG is not healthy: {pleg}"
        return error

    def node_health(self) -> NodeHealth:
        """The inputs of the node's Ready condition."""
        pleg = self.relists.error() if self.cache.populated else ""
        runtime, storage = self.monitor.runtime_error(), self.storage()
        unanswered = (runtime if self.monitor.unanswered else "", storage)
        return NodeHealth(
            runtime_error=runtime,
            network_error=self.monitor.network_error(),
            storage_error=storage,
            pleg_error=f"PLEG is not healthy: {pleg}" if pleg else "",
            shutting_down=self.shutdown.shutting_down,
            pressures=self.pressures(),
            unanswered=tuple(filter(None, unanswered)),
            cgroup_error=self.cgroups(),
        )


class SyncLoopHealth(structs.Component):
    """Reports a sync loop that stands still. Make it inside a running event loop."""

    loop: SyncLoop
    # The setting of that name, in seconds.
    sync_frequency: float

    def __post_init__(self) -> None:
        self._overdue = max(PASS_OVERDUE_S, 2 * self.sync_frequency)
        self._started_at = asyncio.get_running_loop().time()

    def error(self) -> str:
        """Why the sync loop is unhealthy: no housekeeping pass for too long; empty when healthy."""
        last = self.loop.last_pass_at or self._started_at
        silent = asyncio.get_running_loop().time() - last
        return f"no housekeeping pass for {silent:.0f} s" if silent > self._overdue else ""
