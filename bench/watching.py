"""Follows pods and the node through a watch, as a user does, and keeps when what was first seen."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from kubeletpy.api.types import JSON
from kubeletpy.kubeapi.protocol import NODES, PODS, KubeApi, Resource

READY = "Ready"
SUCCEEDED = "Succeeded"
GONE = "gone"
PATIENCE = 180.0
"""Seconds after which something that should have happened counts as broken."""


class Watching:
    """Moments (Unix seconds) by object name, of one resource. Run :meth:`follow` as a task."""

    def __init__(self, api: KubeApi, resource: Resource = PODS) -> None:
        self._api = api
        self._resource = resource
        self._seen: dict[str, dict[str, float]] = defaultdict(dict)
        self._waiters: dict[tuple[str, str], asyncio.Future[float]] = {}
        self.latest: dict[str, JSON] = {}
        """The newest object of each name."""
        self.observers: list[Callable[[str, JSON], None]] = []
        """Told (type of the event, object) of each change."""
        self.writes = 0
        """How many changes were seen."""
        self.started = asyncio.Event()

    async def follow(self) -> None:
        """Watch until cancelled."""
        answer = await self._api.list(self._resource)
        version = answer["metadata"]["resourceVersion"]
        async for event in self._api.watch(
            self._resource, resource_version=version, timeout_seconds=3600
        ):
            self.started.set()
            if event.type != "BOOKMARK":
                self._take(event.type, event.object, time.time())

    async def until(self, name: str, what: str) -> float:
        """When something was first seen; waits for it.

        Raises:
            TimeoutError: it did not happen within PATIENCE.
        """
        known = self._seen[name].get(what)
        if known is not None:
            return known
        waiter = self._waiters.setdefault((name, what), asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(PATIENCE):
                return await waiter
        except TimeoutError:
            status = (self.latest.get(name) or {}).get("status")
            raise TimeoutError(f"{name} not {what} after {PATIENCE:g} s: {status}") from None

    def forget(self, name: str) -> None:
        """Have the next moments of a name count as first."""
        self._seen.pop(name, None)

    def _take(self, kind: str, obj: JSON, now: float) -> None:
        name = obj["metadata"]["name"]
        self.writes += 1
        for observe in self.observers:
            observe(kind, obj)
        if kind == "DELETED":
            self.latest.pop(name, None)
            self._happened(name, GONE, now)
            return
        self.latest[name] = obj
        status = obj.get("status") or {}
        if any(c["type"] == READY and c["status"] == "True" for c in status.get("conditions", ())):
            self._happened(name, READY, now)
        if status.get("phase") == SUCCEEDED:
            self._happened(name, SUCCEEDED, now)

    def _happened(self, name: str, what: str, now: float) -> None:
        if self._seen[name].setdefault(what, now) == now:
            waiter = self._waiters.pop((name, what), None)
            if waiter is not None and not waiter.done():
                waiter.set_result(now)


__all__ = ["GONE", "NODES", "READY", "SUCCEEDED", "Watching"]
