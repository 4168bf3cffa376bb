"""Checks on init containers soon after their start, where the runtime has no events.

The next container waits for this one to end, which most often happens soon; a relist every second
would set the pace of every pod with init containers. So one container at a time is polled after
growing pauses, until the relist is as good. Must never poll while events flow, nor anything else
that runs: it may run forever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.syncloop.pleg import Pleg

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.02
LAST_PAUSE_S = 1.0
"""Pauses before polls, each twice as long as the previous one."""

CurrentPod = Callable[[str], tuple[Pod, Pod | None] | None]


class EarlyPolls:
    """Follows the status cache; at most one task per init container that has just started."""

    def __init__(
        self, runtime: RuntimeService, cache: PodStatusCache, pleg: Pleg, current_pod: CurrentPod
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._pleg = pleg
        self._current_pod = current_pod
        self._polls: dict[str, asyncio.Task[None]] = {}
        """Running polls, by pod uid."""
        self._polled: dict[str, str] = {}
        """Pod uid -> the init container that was polled last."""

    def changed(self, uid: str) -> None:
        """The cache has a new status of a pod, or none any more."""
        status = self._cache.status(uid)
        if status is None:
            self._polled.pop(uid, None)
            return
        if self._pleg.has_events:
            return
        container_id = self._running_init_container(uid, status)
        if not container_id or self._polled.get(uid) == container_id:
            return
        self._polled[uid] = container_id
        if (before := self._polls.get(uid)) is not None:
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._poll(status, container_id))
        self._polls[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

    async def close(self) -> None:
        """Stop polling."""
        await cancel_tasks(self._polls.values())

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._polls.get(uid) is task:
            del self._polls[uid]

    def _running_init_container(self, uid: str, status: PodRuntimeStatus) -> str:
        current = self._current_pod(uid)
        if current is None or not current[0].init_containers:
            return ""
        names = {c["name"] for c in current[0].init_containers if not is_sidecar(c)}
        return next((c.id for c in status.running_containers if c.name in names), "")

    async def _poll(self, status: PodRuntimeStatus, container_id: str) -> None:
        pause = FIRST_PAUSE_S
        while pause <= LAST_PAUSE_S:
            await asyncio.sleep(pause)
            pause *= 2
            try:
                answer = await self._runtime.container_status(container_id)
            except CRIError as error:
                log.debug("init container could not be inspected", extra={"error": str(error)})
                return
            if answer.status.state != cri.CONTAINER_RUNNING:
                self._pleg.read_soon(status.uid, status.name, status.namespace)
                return
