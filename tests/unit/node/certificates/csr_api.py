"""The part of an API that certificate requests need, on virtual time: it can be down, or refuse."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import CERTIFICATESIGNINGREQUESTS, Resource, WatchEvent
from kubeletpy.kubeapi.watch_state import FailingWatches, StreamedLists
from tests.streamed_list import streamed


class CsrApi:
    """Keeps requests; ``decide`` is called with each new one, and ``answer`` changes one.

    Attributes:
        error: raised by every call while it is set.
        created: names of all requests ever made.
    """

    def __init__(self) -> None:
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()
        self.error: ApiError | None = None
        self.created: list[str] = []
        self.requests: dict[str, JSON] = {}
        self.decide: Callable[[JSON], None] = lambda request: None
        self._versions = itertools.count(1)
        self._watching: list[asyncio.Queue[WatchEvent]] = []

    def down(self) -> None:
        """Nobody answers."""
        self.error = Unavailable("down")
        for queue in self._watching:
            queue.put_nowait(WatchEvent("END", {}))

    def answer(self, request: JSON) -> None:
        """Store a request as it is now."""
        self._put(request, "MODIFIED")

    def remove(self, name: str) -> None:
        """Delete a request."""
        self._notify(WatchEvent("DELETED", self.requests.pop(name)))

    async def create(self, resource: Resource, obj: JSON, *args: Any, **more: Any) -> JSON:
        self._check(resource)
        name = obj["metadata"]["name"]
        if name in self.requests:
            raise AlreadyExists(name, code=409)
        self.created.append(name)
        made = self._put({**obj, "metadata": {"name": name, "uid": f"uid-{name}"}}, "ADDED")
        self.decide(made)
        return made

    async def get(self, resource: Resource, name: str, *args: Any) -> JSON:
        self._check(resource)
        if name not in self.requests:
            raise NotFound(name, code=404)
        return self.requests[name]

    async def list(self, resource: Resource, *args: Any, **query: Any) -> JSON:
        self._check(resource)
        name = query["field_selector"].removeprefix("metadata.name=")
        found = [self.requests[name]] if name in self.requests else []
        return {"metadata": {"resourceVersion": str(next(self._versions))}, "items": found}

    async def watch(
        self, resource: Resource, *args: Any, **query: Any
    ) -> AsyncIterator[WatchEvent]:
        self._check(resource)
        name = query["field_selector"].removeprefix("metadata.name=")
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._watching.append(queue)
        try:
            if query["send_initial_events"]:
                found = [self.requests[name]] if name in self.requests else []
                for event in streamed(found, str(next(self._versions))):
                    yield event
            async with asyncio.timeout(query["timeout_seconds"]):
                while True:
                    event = await queue.get()
                    if event.type == "END":
                        raise Unavailable("gone")
                    if event.object["metadata"]["name"] == name:
                        yield event
        except TimeoutError:
            return
        finally:
            self._watching.remove(queue)

    def _check(self, resource: Resource) -> None:
        assert resource is CERTIFICATESIGNINGREQUESTS
        if self.error is not None:
            raise self.error

    def _put(self, request: JSON, kind: str) -> JSON:
        version = str(next(self._versions))
        about = {**request["metadata"], "resourceVersion": version}
        stored = {**request, "metadata": about}
        self.requests[about["name"]] = stored
        self._notify(WatchEvent(kind, stored))
        return stored

    def _notify(self, event: WatchEvent) -> None:
        for queue in self._watching:
            queue.put_nowait(event)
