"""The store as a thread beside the event loop uses it: reads at once, writes on the loop.

A repeated read returns the first result again. A write is refused (:class:`Stale`) if anything that
was read has changed since: the work then starts over. The thread encodes large objects in pieces.
Must never be used on the loop itself: it would wait for itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component
from kubeletpy_up.schema import sliced_json
from kubeletpy_up.storage.history import Change, versioned
from kubeletpy_up.storage.store import Entry, Key, Store, undo


class Stale(Exception):
    """An object that was read has changed before the write."""


OnLoop = Callable[[Callable[[], Any]], Any]
"""Runs a function on the event loop and returns what it returns, or raises what it raises."""


class OptimisticStore(Store):
    """A view of ``store``; ``on_loop`` runs what must not be interrupted."""

    def __init__(self, store: Store, on_loop: OnLoop) -> None:
        self._store = store
        self._on_loop = on_loop
        self._read: dict[tuple[str, str, str], Entry | None] = {}
        self._listed: dict[tuple[str, str | None], list[tuple[Key, Entry]]] = {}

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._store.revision

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        """One object, or None."""
        entry = self._store.get(resource, namespace, name)
        return self._read.setdefault((resource, namespace, name), entry)

    def entries(self, resource: str, namespace: str | None = None) -> Iterator[tuple[Key, Entry]]:
        """A resource's objects, as :meth:`Store.entries`."""
        _, found = self.snapshot(resource, namespace)
        return iter(self._listed.setdefault((resource, namespace), found))

    def snapshot(
        self, resource: str, namespace: str | None = None
    ) -> tuple[int, list[tuple[Key, Entry]]]:
        """The revision and a resource's objects, as :meth:`Store.snapshot`."""
        found: tuple[int, list[tuple[Key, Entry]]] = self._on_loop(
            lambda: self._store.snapshot(resource, namespace)
        )
        return found

    def count(self, resource: str) -> int:
        """How many objects a resource has."""
        return self._store.count(resource)

    def changes_since(self, revision: int, resource: str) -> list[Change]:
        """Like :meth:`Store.changes_since`; decoded on the thread."""
        past = self._on_loop(lambda: self._store.past_since(revision, resource))
        return [each.change() for each in past]

    def entries_at(
        self, revision: int, resource: str, namespace: str | None = None
    ) -> list[tuple[Key, JSON]]:
        """Like :meth:`Store.entries_at`; decoded on the thread."""
        now, found = self.snapshot(resource, namespace)
        then = {key: entry.object for key, entry in found}
        if now != revision:
            changes = [c for c in self.changes_since(revision, resource) if c.revision <= now]
            undo(then, changes, namespace)
        return list(then.items())

    def knows(self, revision: int) -> bool:
        """Whether a watch may start at ``revision``."""
        return bool(self._on_loop(lambda: self._store.knows(revision)))

    def put(
        self,
        resource: str,
        namespace: str,
        name: str,
        obj: JSON,
        text_of: Callable[[int], str] | None = None,
    ) -> JSON:
        """Like :meth:`Store.put`. Raises Stale if an object that was read has changed."""
        text_of = text_of or _numbered(obj)
        written: JSON = self._write(
            lambda: self._store.put(resource, namespace, name, obj, text_of)
        )
        return written

    def remove(
        self,
        resource: str,
        namespace: str,
        name: str,
        last: JSON | None = None,
        text_of: Callable[[int], str] | None = None,
    ) -> JSON:
        """Like :meth:`Store.remove`. Raises Stale if an object that was read has changed."""
        text_of = text_of or _numbered(last or self._known(resource, namespace, name))
        removed: JSON = self._write(
            lambda: self._store.remove(resource, namespace, name, last, text_of)
        )
        return removed

    def _known(self, resource: str, namespace: str, name: str) -> JSON:
        entry = self._store.get(resource, namespace, name)
        if entry is None:
            raise Stale
        return entry.object

    def _write(self, write: Callable[[], JSON]) -> JSON:
        def checked() -> JSON:
            self._check()
            return write()

        written: JSON = self._on_loop(checked)
        self._read.clear()
        self._listed.clear()
        return written

    def _check(self) -> None:
        for (resource, namespace, name), entry in self._read.items():
            if self._store.get(resource, namespace, name) is not entry:
                raise Stale
        for (resource, where), found in self._listed.items():
            now = self._store.snapshot(resource, where)[1]
            if len(now) != len(found) or any(
                a[1] is not b[1] for a, b in zip(now, found, strict=True)
            ):
                raise Stale


def _numbered(obj: JSON) -> Callable[[int], str]:
    """The object as JSON for whichever revision it gets; encoded here and now."""
    mark = uuid.uuid4().hex
    marked = versioned(obj, 0)
    marked["metadata"]["resourceVersion"] = mark
    before, _, after = sliced_json.encode(marked).partition(mark)
    return lambda revision: f"{before}{revision}{after}"


RETENTION_SECONDS = 3600.0
"""How long an event is kept after its last write."""

MAX_EVENTS = 5000


class EventRetention(Component):
    """Removes old events from a store: neither time nor a busy writer fills it.

    It must be notified of the store's changes.
    """

    store: Store

    def expire(self, now: float) -> int:
        """Remove what is too old; returns how many. ``now``: Unix seconds."""
        oldest = now - RETENTION_SECONDS
        expired = [key for key, e in self.store.entries("events") if e.updated < oldest]
        for namespace, name in expired:
            self.store.remove("events", namespace, name)
        return len(expired)

    def on_change(self, change: Change) -> None:
        """Make room for a new event: the oldest write is removed first."""
        if change.resource != "events" or change.type != "ADDED":
            return
        if self.store.count("events") > MAX_EVENTS:
            pairs = self.store.entries("events")
            namespace, name = min(pairs, key=lambda pair: pair[1].revision)[0]
            self.store.remove("events", namespace, name)
