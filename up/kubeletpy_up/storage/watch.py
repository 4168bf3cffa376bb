"""A watch: what one client still has to receive, in order, bounded.

The store's changes go in (synchronously), watch events come out. The watch of a client that
lets its queue grow too long is ended; the client starts again from the last resourceVersion that
it saw. Must never block the writer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Struct
from kubeletpy_up.errors import ApiError
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.storage.history import Change, versioned
from kubeletpy_up.storage.selectors import Selection

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
QUEUE_LIMIT = 1000
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""How long before its end a watch sends its last bookmark."""


class WatchEvent(Struct, frozen=True):
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (the object is then a Status).

    Attributes:
        text: the object as JSON, if already known.
    """

    type: str
    object: JSON
    text: str | None = None


def transition(selection: Selection, change: Change) -> str | None:
    """The event type of a change for a watch, or None for no event.

    An object that stops matching is DELETED; one that starts matching is ADDED.
    """
    before = change.previous is not None and selection.matches(change.previous)
    if change.type == "DELETED":
        return "DELETED" if before else None
    if selection.matches(change.object):
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


class Subscription(Component):
    """One running watch; take its events with :meth:`next` until None, then :meth:`close` it.

    Args:
        resource: what is watched.
        selection: which objects.
        convert: from a stored object to this resource's version; None for no conversion.
        revision: called for the current revision, for bookmarks.
        bookmarks: whether to send BOOKMARK events now and then.
        timeout_seconds: when the watch ends by itself; None for never.
        on_close: called once.
    """

    resource: ResourceInfo
    selection: Selection
    revision: Callable[[], int]
    convert: Callable[[JSON], JSON] | None = None
    bookmarks: bool = False
    timeout_seconds: float | None = None
    on_close: Callable[[Subscription], None] | None = None

    def __post_init__(self) -> None:
        self._deadline: float | None = None
        self._queue: deque[WatchEvent] = deque()
        self._limit = QUEUE_LIMIT
        self._wake: asyncio.Future[None] | None = None
        self._closed = False
        self._ended = False

    def offer(self, change: Change) -> None:
        """Queue a change of the watched resource, if selected."""
        if self._ended or self._closed:
            return
        kind = transition(self.selection, change)
        if kind is None:
            return
        if len(self._queue) >= self._limit:
            self._ended = True
            self._notify()
            return
        if kind == "DELETED" and change.type != "DELETED" and change.previous is not None:
            # an object that no longer matches is shown as it last matched
            self._push(kind, versioned(change.previous, change.revision), None)
            return
        self._push(kind, change.object, change.text)

    def push_initial(self, obj: JSON, text: str) -> None:
        """Queue an object that existed before; these don't count towards being slow."""
        self._limit += 1
        self._push("ADDED", obj, text)

    def _push(self, kind: str, obj: JSON, text: str | None) -> None:
        if self.convert is not None:
            obj, text = self.convert(obj), None
        self._queue.append(WatchEvent(kind, obj, text))
        self._notify()

    def push_bookmark(self, *, initial_events_end: bool = False) -> None:
        """Queue a bookmark of the current revision."""
        self._queue.append(self._bookmark(initial_events_end))
        self._notify()

    def fail(self, error: ApiError) -> None:
        """Queue an ERROR event and end after it."""
        self._queue.append(WatchEvent("ERROR", error.status()))
        self._ended = True
        self._notify()

    def _bookmark(self, initial_events_end: bool) -> WatchEvent:
        metadata: JSON = {"resourceVersion": str(self.revision())}
        if initial_events_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: JSON = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.group_version,
            "metadata": metadata,
        }
        return WatchEvent("BOOKMARK", obj)

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def take(self) -> list[WatchEvent]:
        """All queued events at once, without waiting."""
        events = list(self._queue)
        self._queue.clear()
        return events

    async def next(self) -> WatchEvent | None:
        """The next event, or None when the watch is over (closed, timed out, too slow)."""
        loop = asyncio.get_running_loop()
        if self._deadline is None and self.timeout_seconds is not None:
            self._deadline = loop.time() + self.timeout_seconds
        while True:
            remaining = None if self._deadline is None else self._deadline - loop.time()
            if self._closed or (remaining is not None and remaining <= 0):
                return None
            if self._queue:
                return self._queue.popleft()
            if self._ended:
                return None
            quiet = self._until_bookmark(remaining)
            waits = [seconds for seconds in (remaining, quiet) if seconds is not None]
            if not await self._wait(min(waits, default=None)) and quiet is not None:
                return self._bookmark(False)

    def _until_bookmark(self, remaining: float | None) -> float | None:
        """Seconds of silence after which a bookmark is due: the last one just before the end."""
        if not self.bookmarks:
            return None
        if remaining is None:
            return BOOKMARK_SECONDS
        early = remaining - LAST_BOOKMARK_SECONDS
        return min(BOOKMARK_SECONDS, early) if early > 0 else None

    async def _wait(self, seconds: float | None) -> bool:
        self._wake = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._wake
        except TimeoutError:
            return False
        finally:
            self._wake = None
        return True

    def close(self) -> None:
        """End the watch at once; what is queued is dropped."""
        if self._closed:
            return
        self._closed = True
        self._notify()
        if self.on_close is not None:
            self.on_close(self)


class Watchers:
    """All running watches, by stored resource; it must be fed the store's changes."""

    def __init__(self) -> None:
        self._by_resource: dict[str, set[Subscription]] = {}

    def add(self, subscription: Subscription) -> None:
        """Offer a watch every coming change of its resource."""
        key = subscription.resource.storage_key
        self._by_resource.setdefault(key, set()).add(subscription)

    def discard(self, subscription: Subscription) -> None:
        """Offer a watch no more changes."""
        self._by_resource.get(subscription.resource.storage_key, set()).discard(subscription)

    def dispatch(self, change: Change) -> None:
        """Offer a change to all watches of its resource."""
        for subscription in tuple(self._by_resource.get(change.resource, ())):
            subscription.offer(change)

    def close_all(self) -> None:
        """End every watch that is open."""
        for subscriptions in list(self._by_resource.values()):
            for subscription in tuple(subscriptions):
                subscription.close()

    def __len__(self) -> int:
        return sum(len(subscriptions) for subscriptions in self._by_resource.values())
