"""One preStop hook in progress, from its start until its container has ended.

The grace period limits how long its container waits for it, not the hook itself. A hook that takes
longer continues while the container is stopped, until the container has ended. Source:
docs/reference/behaviour.md, n1. Must never stop the container.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.runtime_manager.hooks import HookFailed

logger = logging.getLogger(__name__)


class PreStopRun:
    """A hook that has been started."""

    def __init__(self, hook: Coroutine[Any, Any, None], container: str, container_id: str) -> None:
        self._task = asyncio.ensure_future(hook)
        self._container = container
        self._container_id = container_id
        self._late = False

    async def wait(self, grace: float) -> None:
        """Wait for its end, at most ``grace`` seconds. Raises HookFailed."""
        with span(TraceCall.PRE_STOP, self._container, limit=grace, milestone=True):
            await asyncio.wait({self._task}, timeout=grace)
        if self._task.done():
            self._task.result()
        else:
            self._late = True
            logger.info(
                "preStop hook did not end within the grace period",
                extra={"container_id": self._container_id, "container": self._container},
            )

    def failed_late(self) -> bool:
        """Whether it failed or was cut off after its grace period, with its container ended."""
        return self._late and (not self._task.done() or self._task.exception() is not None)

    async def give_up(self) -> None:
        """Its container has ended, or nothing waits for it any more."""
        self._task.add_done_callback(_log_late_failure)
        await cancel_tasks((self._task,))


def _log_late_failure(task: asyncio.Task[None]) -> None:
    """A hook that dies with its container is no news."""
    if not task.cancelled() and (error := task.exception()) is not None:
        level = logging.DEBUG if isinstance(error, HookFailed) else logging.ERROR
        logger.log(level, "late preStop hook failed", extra={"error": str(error)})
