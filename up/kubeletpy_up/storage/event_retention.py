"""How long events are kept, and how many: neither time nor a busy writer fills the store."""

from __future__ import annotations

from kubeletpy_up.storage.history import Change
from kubeletpy_up.storage.store import Store

RETENTION_SECONDS = 3600.0
"""How long an event is kept after its last write."""

MAX_EVENTS = 5000


class EventRetention:
    """Removes old events from a store; it must be notified of the store's changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def expire(self, now: float) -> int:
        """Remove what is too old; returns how many. ``now``: Unix seconds."""
        oldest = now - RETENTION_SECONDS
        expired = [key for key, e in self._store.entries("events") if e.updated < oldest]
        for namespace, name in expired:
            self._store.remove("events", namespace, name)
        return len(expired)

    def on_change(self, change: Change) -> None:
        """Make room for a new event: the oldest write is removed first."""
        if change.resource != "events" or change.type != "ADDED":
            return
        if self._store.count("events") > MAX_EVENTS:
            pairs = self._store.entries("events")
            namespace, name = min(pairs, key=lambda pair: pair[1].revision)[0]
            self._store.remove("events", namespace, name)
