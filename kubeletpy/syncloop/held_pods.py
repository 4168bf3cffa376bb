"""Pods whose admission takes a while, and pods that were refused: neither may get a worker.

Admission takes a while when others must give way first, or the node is fetched again. Must never
keep a pod that has left the configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.resources.admission.checks import Rejection

log = logging.getLogger(__name__)

Settled = Callable[[str, Rejection | None], None]


class HeldPods:
    """Pods whose admission is undecided or refused, by uid; no more than the configuration has."""

    def __init__(self, settled: Settled) -> None:
        """``settled(uid, rejection)`` is called with the outcome of a pod's admission; None: it may
        run."""
        self._settled = settled
        self._tasks: dict[str, asyncio.Task[Rejection | None]] = {}
        self._refused: set[str] = set()

    @property
    def waiting(self) -> frozenset[str]:
        """Pods that are neither admitted nor refused yet."""
        return frozenset(self._tasks)

    @property
    def undecided(self) -> frozenset[str]:
        """Pods that take nothing of the node: those waiting, but for the ones just admitted.

        An admitted pod counts as soon as its own admission is decided. The next pod may be decided
        in the same turn of the event loop, before this outcome is recorded.
        """
        return frozenset(uid for uid, task in self._tasks.items() if not _admits(task))

    def holds(self, uid: str) -> bool:
        """Whether a pod may not be started now."""
        return uid in self._tasks or uid in self._refused

    def hold_until(self, uid: str, answer: Awaitable[Rejection | None]) -> None:
        """Hold a pod until the answer arrives."""
        task = asyncio.ensure_future(answer)
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._done(uid, done))

    def refuse(self, uid: str) -> None:
        """Never start this pod."""
        self._refused.add(uid)

    def forget(self, uid: str) -> None:
        """The pod has left, or is being deleted."""
        self._refused.discard(uid)
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Give up everything that is still waited for."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel_tasks(tasks)

    def _done(self, uid: str, task: asyncio.Task[Rejection | None]) -> None:
        if self._tasks.get(uid) is not task:
            return
        del self._tasks[uid]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._settled(uid, task.result())
            return
        # a task boundary: a fault in one pod's admission must not end the agent, nor hide the pod
        log.error("admission of pod failed", extra={"uid": uid}, exc_info=error)
        message = f"Unexpected error while attempting to recover from admission failure: {error}"
        self._settled(uid, Rejection(AdmissionReason.UNEXPECTED_ADMISSION_ERROR, message))


def _admits(task: asyncio.Task[Rejection | None]) -> bool:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result() is None
