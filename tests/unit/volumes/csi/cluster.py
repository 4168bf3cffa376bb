"""A Kubernetes API in memory: objects of any kind, one watch each, and refusals."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, Conflict, NotFound
from kubeletpy.kubeapi.protocol import CSIDRIVERS, NODES, Call, KubeApi, Resource, WatchEvent
from tests.streamed_list import streamed


class Cluster(KubeApi):
    """The part of an API that drivers need."""

    def __init__(self, **labels: str) -> None:
        self.objects: dict[tuple[str, str, str], JSON] = {}
        self.calls: list[str] = []
        self.refusals: list[ApiError] = []
        """Raised by the next calls, in order."""
        self.down: ApiError | None = None
        self._queues: list[tuple[str, asyncio.Queue[WatchEvent]]] = []
        self._version = 0
        self._written = asyncio.Event()
        self.put(NODES, "n", metadata={"uid": "node-uid", "labels": labels})

    def put(self, resource: Resource, name: str, namespace: str = "", **fields: Any) -> JSON:
        """Make or replace an object."""
        key = (resource.plural, namespace, name)
        self._version += 1
        self._written.set()
        supplied = fields.pop("metadata", {})
        metadata = {"name": name, "resourceVersion": str(self._version), **supplied}
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = {"metadata": metadata, **fields}
        for plural, queue in self._queues:
            if plural == resource.plural:
                queue.put_nowait(WatchEvent(kind, self.objects[key]))
        return self.objects[key]

    def driver(self, name: str, **spec: Any) -> None:
        """Make a CSIDriver."""
        self.put(CSIDRIVERS, name, spec={"fsGroupPolicy": "ReadWriteOnceWithFSType", **spec})

    async def wrote(self) -> None:
        """Wait for the next created or changed object."""
        self._written.clear()
        await self._written.wait()

    def get_now(self, resource: Resource, name: str) -> Any:
        """The current object, or None."""
        return self.objects.get((resource.plural, "", name))

    async def answer(self, call: Call) -> JSON:
        self.calls.append(f"{call.verb} {call.resource.plural}{call.subresource and '/token'}")
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        if self.down is not None:
            raise self.down
        resource, key = call.resource, (call.resource.plural, call.namespace or "", call.name)
        if call.verb == "list":
            items = [found for (plural, _, _), found in self.objects.items() if plural == key[0]]
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        if call.subresource == "token":
            assert isinstance(call.body, dict)
            end = format_time(4_000_000_000.0)
            return {"spec": call.body["spec"], "status": {"token": "T", "expirationTimestamp": end}}
        body: Any = copy.deepcopy(call.body)
        if call.verb == "create":
            name = body["metadata"]["name"]
            if (key[0], key[1], name) in self.objects:
                raise AlreadyExists("it is there")
            body["metadata"].setdefault("uid", f"uid-{name}")
            return self.put(resource, name, key[1], **body)
        if key not in self.objects:
            raise NotFound(f'{key[0]} "{key[2]}" not found', code=404)
        found = self.objects[key]
        if call.verb == "update":
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise Conflict("stale")
            del body["metadata"]["resourceVersion"]
            return self.put(resource, key[2], key[1], **body)
        if call.verb == "patch":
            merged = _merge(found, body)
            del merged["metadata"]["resourceVersion"]
            return self.put(resource, key[2], key[1], **merged)
        if call.verb == "delete":
            return self.objects.pop(key)
        return found

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._queues.append((call.resource.plural, queue))
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": call.resource_version}})
        if call.send_initial_events:
            plural = call.resource.plural
            items = [found for (each, _, _), found in self.objects.items() if each == plural]
            for event in streamed(items, str(self._version)):
                yield event
        while True:
            yield await queue.get()


def _merge(base: Any, patch: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(patch, Mapping)):
        return patch
    merged = {**base}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(base.get(key, {}), value)
    return merged
