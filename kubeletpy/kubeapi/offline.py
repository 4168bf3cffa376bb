"""An API that answers from the last known objects until its server has answered.

:class:`OfflineApi` stands between the agent and its client, so that no other component handles it.
It records the answers that a start needs. The agent is *alone* where a record exists and the server
has not answered PATIENCE_S after the start. Reads are then answered from the record at once; other
requests are sent, as they are the attempts to reach the server. The first answer ends that: watches
end with 410, so that every reflector lists anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

from kubeletpy.base.api.times import Moment, format_time, parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks, wait_within
from kubeletpy.kubeapi import last_known, protocol
from kubeletpy.kubeapi.errors import ApiError, NotFound, Removed, Unavailable
from kubeletpy.kubeapi.protocol import NODES, PODS, Call, KubeApi, WatchEvent
from kubeletpy.kubeapi.tracked_object import ObjectKey, is_that_object
from kubeletpy.kubeapi.watch_state import (
    INITIAL_EVENTS_END,
    FailingWatches,
    InitialEvents,
    StreamedLists,
    Usage,
)

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a start waits for the API server: the network of a machine that has just booted takes
a moment."""
RETRY_S = 0.5
TOKEN_S = 75
"""For how long a token of the record is handed out that expires sooner, or has expired: a pod may
start with it, and requests it again soon."""


class ApiContact(Component):
    """Whether the API server has answered since the agent's start, and when it last heard of us.

    Attributes:
        made: set with the first answer.
        shown: set once the server's list of the pods has been merged.
        alone: whether the agent has given up waiting for it; ``was_alone``: or had, before that.
        before: the last contact of an earlier start.
        last: when a renewal of the node's lease that succeeded was begun, while the pods were
            followed; of an earlier start, if there was none.
    """

    moment: Callable[[], Moment]

    def __post_init__(self) -> None:
        self.made = asyncio.Event()
        self.shown = asyncio.Event()
        self.alone = self.was_alone = False
        self.before: Moment | None = None
        self.last: Moment | None = None
        self.pods_followed = False

    def answered(self) -> None:
        """The API server has answered."""
        if self.alone and not self.made.is_set():
            log.info("the API server answers: pods are compared with it")
        self.made.set()
        self.alone = False

    def left_alone(self) -> None:
        """The API server does not answer."""
        if not self.made.is_set():
            log.warning("the API server does not answer: starting from the record of its objects")
            self.alone = self.was_alone = True

    def heard(self, begun: Moment) -> None:
        """The node's lease is renewed; ``begun``: when the request was sent."""
        if self.pods_followed:
            self.last = begun


class _Delegate(KubeApi):
    """An API that is another one, but for its answers."""

    def __init__(self, inner: KubeApi, contact: ApiContact) -> None:
        self._inner = inner
        self._contact = contact

    @property
    def streamed_lists(self) -> StreamedLists:
        return self._inner.streamed_lists

    @property
    def failing_watches(self) -> FailingWatches:
        return self._inner.failing_watches

    @property
    def usage(self) -> Usage | None:
        return self._inner.usage

    @property
    def watch_capacity(self) -> int:
        return self._inner.watch_capacity

    async def version(self) -> bytes:
        return await self._inner.version()

    async def answer(self, call: Call) -> JSON:
        try:
            found = await self._inner.answer(call)
        except NotFound:
            self._contact.answered()
            raise
        self._contact.answered()
        return found

    def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        return self._inner.follow(call)


class HeartbeatApi(_Delegate):
    """The API for heartbeats, which notes each that has arrived."""

    async def answer(self, call: Call) -> JSON:
        begun = self._contact.moment()
        found = await super().answer(call)
        if call.resource == protocol.LEASES:
            self._contact.heard(begun)
        return found


class OfflineApi(_Delegate):
    """The API for everything about pods. Close it."""

    def __init__(
        self,
        inner: KubeApi,
        contact: ApiContact,
        known: last_known.LastKnown,
        node_name: str,
        clock: Clock,
    ) -> None:
        super().__init__(inner, contact)
        self._known = known
        self._node_name = node_name
        self._clock = clock
        self._settling: asyncio.Task[None] | None = None

    @property
    def alone(self) -> bool:
        return self._contact.was_alone and not self._contact.shown.is_set()

    async def close(self) -> None:
        """Stop waiting for the API server."""
        await cancel_tasks((self._settling,))

    async def answer(self, call: Call) -> JSON:
        token = bool(last_known.bound_pod(call))
        reads = call.verb in ("get", "list") and last_known.is_kept(call)
        if (reads or token) and await self._is_alone():
            return self._known_token(call) if token else self._known_answer(call)
        try:
            found = await super().answer(call)
        except NotFound:
            if reads and (where := last_known.selected(call)) is not None:
                self._known.note(where, None)
            raise
        if token:
            self._known.note_token(call, found)
        elif reads and call.verb == "list":
            self._known.note_page(call, found)
        elif reads and is_that_object(_key(call), found):
            self._known.note(last_known.object_id(call.resource, found), found)
        return found

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        if not last_known.is_kept(call):
            async for event in self._inner.follow(call):
                yield event
            return
        if await self._is_alone():
            for event in self._known_events(call):
                yield event
            await self._contact.made.wait()
            raise Removed("the API server answers again", code=410)
        pods = call.resource == PODS
        try:
            async with aclosing(cast("Any", self._inner.follow(call))) as stream:
                initial = InitialEvents() if call.send_initial_events else None
                async for event in stream:
                    self._contact.answered()
                    if initial is None:
                        self._note_event(call, event)
                    elif _is_complete(initial, event):
                        self._known.note_all(call, initial.objects)
                        initial = None
                    self._contact.pods_followed |= pods and initial is None
                    yield event
        finally:
            if pods:
                self._contact.pods_followed = False

    def _note_event(self, call: Call, event: WatchEvent) -> None:
        where = last_known.object_id(call.resource, event.object)
        if event.type != "BOOKMARK" and where[2]:
            self._known.note(where, None if event.type == "DELETED" else event.object)

    # -- alone ----------------------------------------------------------------------------------

    async def _is_alone(self) -> bool:
        """Whether to answer from the record; waits until that is decided."""
        contact = self._contact
        if contact.made.is_set() or contact.alone:
            return contact.alone
        if not self._known.contents.listed:
            return False
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_task(
                self._settle(), name="first answer of the API"
            )
        await asyncio.shield(self._settling)
        return contact.alone

    async def _settle(self) -> None:
        loop, contact = asyncio.get_running_loop(), self._contact
        until = loop.time() + PATIENCE_S
        while not contact.made.is_set() and loop.time() < until:
            try:
                async with asyncio.timeout_at(until):
                    await super().answer(Call("get", NODES, name=self._node_name))
            except (Unavailable, TimeoutError):
                await wait_within(contact.made, min(RETRY_S, max(until - loop.time(), 0.0)))
            except ApiError:
                contact.answered()
        contact.left_alone()

    def _known_answer(self, call: Call) -> JSON:
        if not self._known.knows(call):
            raise Unavailable(f"{_reported(call)}: no answer from the API, and no record of it")
        found = self._known.objects(call)
        if call.verb == "list":
            return {"items": found, "metadata": {"resourceVersion": _VERSION}}
        if not found:
            raise NotFound(f"{_reported(call)} not found, as of the last contact", code=404)
        return found[0]

    def _known_events(self, call: Call) -> list[WatchEvent]:
        """The events of a watch before contact; none for what is not known."""
        version = {"resourceVersion": call.resource_version}
        begun = WatchEvent("BOOKMARK", {"metadata": version})
        if not call.send_initial_events or not self._known.knows(call):
            return [begun]
        stamp = {"apiVersion": call.resource.api_version, "kind": call.resource.kind}
        found = [WatchEvent("ADDED", {**stamp, **each}) for each in self._known.objects(call)]
        notes = {INITIAL_EVENTS_END: "true"}
        end: JSON = {"metadata": {"resourceVersion": _VERSION, "annotations": notes}}
        return [begun, *found, WatchEvent("BOOKMARK", end)]

    def _known_token(self, call: Call) -> JSON:
        """The last token; one that expires soon counts as one of TOKEN_S seconds."""
        if (known := self._known.token(call)) is None:
            raise Unavailable(
                f"{_reported(call)}: no answer from the API, and no record of a token"
            )
        soon, status = self._clock.now() + TOKEN_S, known["status"]
        if parse_time(status["expirationTimestamp"]) > soon:
            return known
        status = {**status, "expirationTimestamp": format_time(soon)}
        spec = {**(known.get("spec") or {}), "expirationSeconds": TOKEN_S}
        return {**known, "spec": spec, "status": status}


_VERSION = "1"
"""The resourceVersion of lists from the record: nothing is watched from there."""


def _is_complete(initial: InitialEvents, event: WatchEvent) -> bool:
    """Add an event of a list that is streamed; whether it was the last one."""
    metadata = event.object.get("metadata")
    if event.type != "BOOKMARK" and not (isinstance(metadata, dict) and metadata.get("name")):
        return False
    return initial.add_event(event.type, event.object)


def _key(call: Call) -> ObjectKey:
    return ObjectKey(call.resource, call.namespace or "", call.name)


def _reported(call: Call) -> str:
    name = f"{call.namespace}/{call.name}" if call.namespace else call.name
    return f"{call.resource.plural} {name}".rstrip()
