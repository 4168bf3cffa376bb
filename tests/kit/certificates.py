"""The part of an API that certificate requests need, and a cluster that signs them on any clock."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import CERTIFICATESIGNINGREQUESTS, Resource, WatchEvent
from kubeletpy.kubeapi.watch_state import FailingWatches, StreamedLists
from tests.kit.messages import streamed


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


CLIENT_USAGES = ("digital signature", "client auth")


class Signer:
    """A certificate authority with its own key."""

    def __init__(self, directory: Path) -> None:
        self.pair = KeyPair.named(directory, "test-ca")
        x509.make_authority(self.pair, "test")

    def certificate(self, key: bytes, names: Names, not_before: float, not_after: float) -> bytes:
        """A certificate (PEM) for a key."""
        return self.sign(x509.new_request(key, names), not_before, not_after)

    def sign(self, request: bytes, not_before: float, not_after: float) -> bytes:
        """Returns the requested certificate (PEM), whatever it contains."""
        return x509.sign_request(
            request,
            self.pair,
            x509.read_request(request),
            usages=CLIENT_USAGES,
            not_before=not_before,
            not_after=not_after,
        )

    def answer(self, request: JSON, now: float, life: float) -> JSON:
        """A CertificateSigningRequest, approved and signed."""
        pem = base64.b64decode(request["spec"]["request"])
        certificate = base64.b64encode(self.sign(pem, now, now + life)).decode()
        conditions = [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]
        return {**request, "status": {"conditions": conditions, "certificate": certificate}}
