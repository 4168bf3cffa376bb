"""A small API in memory: configMaps, secrets and tokens, with watches, refusals and counters."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.kubeapi.errors import ApiError, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import CONFIGMAPS, Resource, WatchEvent
from kubeletpy.kubeapi.watch_state import MAX_WATCHES, FailingWatches, StreamedLists
from tests.streamed_list import streamed

Key = tuple[str, str, str]


LOST = WatchEvent("LOST", {})


def jwt(claims: object) -> str:
    """An unsigned token with these claims."""
    parts = [b'{"alg":"RS256"}', json.dumps(claims).encode(), bytes(range(256))]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


class FakeApi:
    """The calls of a KubeApi that volumes use."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.objects: dict[Key, JSON] = {}
        self.calls: Counter[str] = Counter()
        self.open_watches = 0
        self.under_way = 0
        """Requests without an answer so far."""
        self.most_under_way = 0
        self.answers_after = 0.0
        """Seconds that a get or create takes."""
        self.refusals: list[ApiError] = []
        """Raised by the next calls, in order."""
        self.down: ApiError | None = None
        self.signs = False
        """Whether tokens are JWTs."""
        self.issued_ago = 0
        """Age of new tokens in seconds."""
        self.versions_asked: list[str] = []
        """The resourceVersion of each answered get."""
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()
        self.watch_capacity = MAX_WATCHES
        self._version = 1
        self._queues: list[tuple[Key, asyncio.Queue[WatchEvent]]] = []

    def put(self, name: str, resource: Resource = CONFIGMAPS, **fields: Any) -> None:
        key = (resource.plural, "default", name)
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self._version += 1
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        self.objects[key] = {"metadata": metadata, **fields}
        self._send_event(key, WatchEvent(kind, self.objects[key]))

    def remove(self, name: str, resource: Resource = CONFIGMAPS) -> None:
        key = (resource.plural, "default", name)
        self._version += 1
        self._send_event(key, WatchEvent("DELETED", self.objects.pop(key)))

    def lose_watches(self) -> None:
        """End all watches as a lost connection does."""
        for _, queue in self._queues:
            queue.put_nowait(LOST)

    def _send_event(self, key: Key, event: WatchEvent) -> None:
        for desired, queue in self._queues:
            if desired == key:
                queue.put_nowait(event)

    def _check(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.refusals:
            raise self.refusals.pop(0)
        if self.down is not None:
            raise self.down

    async def _answered(self) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.answers_after)
        self.under_way -= 1

    async def get(
        self, resource: Resource, name: str, namespace: str, *, resource_version: str = ""
    ) -> JSON:
        self._check("get")
        self.versions_asked.append(resource_version)
        await self._answered()
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound("there is none", code=404)
        return found

    async def list(self, resource: Resource, namespace: str, **supplied: Any) -> JSON:
        self._check("list")
        name = supplied["field_selector"].removeprefix("metadata.name=")
        found = self.objects.get((resource.plural, namespace, name))
        version = {"resourceVersion": str(self._version)}
        return {"metadata": version, "items": [found] if found else []}

    async def watch(
        self, resource: Resource, namespace: str, **supplied: Any
    ) -> AsyncIterator[WatchEvent]:
        self._check("watch")
        name = supplied["field_selector"].removeprefix("metadata.name=")
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        entry = ((resource.plural, namespace, name), queue)
        self._queues.append(entry)
        self.open_watches += 1
        try:
            if supplied["send_initial_events"]:
                found = self.objects.get(entry[0])
                for event in streamed([found] if found else [], str(self._version)):
                    yield event
            while True:
                event = await queue.get()
                if event is LOST:
                    raise Unavailable("connection lost")
                yield event
        finally:
            self.open_watches -= 1
            self._queues.remove(entry)

    async def create(self, resource: Resource, obj: JSON, namespace: str, **supplied: Any) -> JSON:
        self._check("create")
        await self._answered()
        assert self._clock is not None
        seconds = obj["spec"]["expirationSeconds"]
        now = int(self._clock.now())
        token = f"token-{self.calls['create']}"
        if self.signs:
            bound = obj["spec"]["boundObjectRef"]
            about = {
                "namespace": namespace,
                "pod": {"name": bound["name"], "uid": bound["uid"]},
                "serviceaccount": {"name": supplied["name"], "uid": "uid-account"},
            }
            begun = now - self.issued_ago
            life = {"iat": begun, "exp": begun + seconds, "jti": token}
            audience = obj["spec"]["audiences"] or ["api"]
            token = jwt({"aud": audience, **life, "kubernetes.io": about})
        status = {
            "token": token,
            "expirationTimestamp": format_time(now - self.issued_ago + seconds),
        }
        self.last_request = (supplied["name"], obj)
        return {**obj, "status": status}
