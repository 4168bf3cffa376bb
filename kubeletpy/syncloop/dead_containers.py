"""Removes dead containers soon after a newer one of their name has died.

Keeps the newest record of each name, from which restarts and last states are read; all go only when
the pod's content may go. Source: docs/reference/behaviour.md, p2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.tasks import Backlog
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import RuntimeManager

log = logging.getLogger(__name__)

QUEUE = 500
WAITS_AT_MOST_S = 10.0
"""A removal waits so long for pods that wait to start or stop."""
KEEP = 1
KEEP_UNREPORTED = 2
"""Runs of a container that a status can show: both stay until the API has them."""


def dead_to_remove(
    status: PodRuntimeStatus, died: str | None, *, keep: int = KEEP, remove_all: bool = False
) -> list[str]:
    """Ids of exited containers that may go.

    ``died``: only containers with that one's name; an unknown id removes nothing. None: all names,
    and the newest ``keep`` of all of them stay. ``remove_all``: everything that has exited.
    """
    exited = [c for c in status.containers if c.state is ContainerState.EXITED]
    if remove_all:
        return [container.id for container in exited]
    if died is not None:
        one = status.by_id(died)
        exited = [] if one is None else [c for c in exited if c.name == one.name]
    exited.sort(key=lambda container: container.rank, reverse=True)
    return [container.id for container in exited[keep:]]


class DeadContainers:
    """One remover for the node; what does not fit in its queue is left to garbage collection."""

    def __init__(
        self,
        runtime: RuntimeManager,
        cache: PodStatusCache,
        content_removable: Callable[[str], bool],
        backlog: Backlog,
        reported: Callable[[str], bool] = lambda uid: True,
    ) -> None:
        """``reported(pod_uid)``: whether the API has how the pod's containers ended."""
        self._runtime = runtime
        self._cache = cache
        self._content_removable = content_removable
        self._backlog = backlog
        self._reported = reported
        self._queue: asyncio.Queue[str] = asyncio.Queue(QUEUE)
        self._queued: set[str] = set()

    def died(self, uid: str, container_id: str) -> None:
        """A container of a pod has died: remove older records of its name."""
        if (status := self._cache.status(uid)) is not None:
            remove_all = self._content_removable(uid)
            keep = KEEP if self._reported(uid) else KEEP_UNREPORTED
            self._enqueue(dead_to_remove(status, container_id, keep=keep, remove_all=remove_all))

    def remove_all(self, uid: str) -> None:
        """Remove every dead container of a pod."""
        if (status := self._cache.status(uid)) is not None:
            self._enqueue(dead_to_remove(status, None, remove_all=True))

    async def run(self) -> None:
        """Remove what is queued, one by one, until cancelled."""
        while True:
            container_id = await self._queue.get()
            await self._backlog.cleared(WAITS_AT_MOST_S)
            self._queued.discard(container_id)
            try:
                await self._runtime.delete_container(container_id)
            except CRIError as error:
                log.info("dead container not removed", extra={"error": str(error)})

    def _enqueue(self, ids: list[str]) -> None:
        for container_id in ids:
            if container_id not in self._queued and not self._queue.full():
                self._queued.add(container_id)
                self._queue.put_nowait(container_id)
