"""Follows pods and the node through a watch, as a user does, and records when it first saw what."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import NODES, PODS, KubeApi, Resource

READY = "Ready"
SUCCEEDED = "Succeeded"
REMOVED = "gone"
PATIENCE = 180.0
"""Seconds after which what should have happened counts as failed, by default."""


class Watching:
    """Times (Unix seconds) by object name, of one resource. Run :meth:`follow` as a task."""

    def __init__(self, api: KubeApi, resource: Resource = PODS) -> None:
        self._api = api
        self._resource = resource
        self._seen: dict[str, dict[str, float]] = defaultdict(dict)
        self._waiters: dict[tuple[str, str], asyncio.Future[float]] = {}
        self.latest: dict[str, JSON] = {}
        """The latest object of each name."""
        self.observers: list[Callable[[str, JSON], None]] = []
        """Called with (event type, object) on each change."""
        self.writes = 0
        """The number of changes seen."""
        self.started = asyncio.Event()
        self.patience = PATIENCE

    async def follow(self) -> None:
        """Watch until cancelled."""
        answer = await self._api.list(self._resource)
        version = answer["metadata"]["resourceVersion"]
        self.started.set()
        while True:
            async for event in self._api.watch(
                self._resource, resource_version=version, timeout_seconds=3600
            ):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    self._take(event.type, event.object, time.time())

    async def until(self, name: str, what: str) -> float:
        """Wait for something; returns when it was first seen.

        Raises:
            TimeoutError: it did not happen within ``patience`` seconds.
        """
        known = self._seen[name].get(what)
        if known is not None:
            return known
        waiter = self._waiters.setdefault((name, what), asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(self.patience):
                return await waiter
        except TimeoutError:
            status = (self.latest.get(name) or {}).get("status")
            problem = f"{name} not {what} after {self.patience:g} s: {status}"
            raise TimeoutError(problem) from None

    def forget(self, name: str) -> None:
        """Make the next times of a name count as first: its pod is about to be made again."""
        self._seen.pop(name, None)

    def _take(self, kind: str, obj: JSON, now: float) -> None:
        name = obj["metadata"]["name"]
        self.writes += 1
        for observe in self.observers:
            observe(kind, obj)
        if kind == "DELETED":
            self.latest.pop(name, None)
            self._happened(name, REMOVED, now)
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


__all__ = ["NODES", "READY", "REMOVED", "SUCCEEDED", "Watching"]
