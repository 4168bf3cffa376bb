"""The store of objects: SQLite on disk, decoded in memory, and a bounded history for watches.

One growing revision counts every write of every object and survives restarts. A write goes to
SQLite (WAL) before it becomes visible, so a process killed at any instant loses nothing that it has
acknowledged. Calls are synchronous and take well under a millisecond. Must never depend on the
meaning of an object; stored objects are shared and must never be changed in place.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct
from kubeletpy_up.errors import too_large
from kubeletpy_up.storage.history import Change, History, Past, versioned

logger = logging.getLogger(__name__)

MAX_OBJECT = 3 << 20
"""Characters of JSON. etcd takes 1.5 MiB of protobuf, which is about half as long."""
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, updated REAL NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO meta VALUES ('revision', 0);
"""

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-wide object is empty."""


class StoreError(Exception):
    """The database can't be opened; the message names the file and what to do."""


class Entry(Struct, frozen=True):
    """A stored object.

    Attributes:
        object: decoded.
        text: the same as JSON.
        revision: of its last write.
        updated: Unix seconds of its last write.
    """

    object: JSON
    text: str
    revision: int
    updated: float


def _encode(obj: JSON) -> str:
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)


def _make_private(path: str) -> None:
    # The database holds secrets; its WAL gets the same mode.
    if path != ":memory:":
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


class Store:
    """All objects of the API.

    Args:
        path: of the database file, or ``:memory:``.
        clock: dates the writes.
        history_count, history_seconds, history_bytes: how far back a watch may start; the
            first bound reached wins.

    Raises:
        StoreError: the file is not one of our databases.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        history_count: int = 10_000,
        history_seconds: float = 3600.0,
        history_bytes: int = 16 << 20,
    ) -> None:
        self._clock = clock
        self._entries: dict[str, dict[Key, Entry]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._undelivered: deque[Change] = deque()
        self._revision: int = 0
        self._delivering = False
        try:
            _make_private(path)
            self._db = sqlite3.connect(path, isolation_level=None)
            self._open()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"can't open the API's database {path}: {error}; "
                "move the file away to start with an empty API"
            ) from error
        self._history = History(self._revision, history_count, history_seconds, history_bytes)

    def _open(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, _SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"made by another version (schema {version})")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        (self._revision,) = db.execute("SELECT value FROM meta WHERE key='revision'").fetchone()
        rows = db.execute(
            "SELECT resource, namespace, name, revision, updated, body FROM objects "
            "ORDER BY resource, namespace, name"
        )
        for resource, namespace, name, revision, updated, body in rows:
            self._revision = max(self._revision, revision)
            try:
                entry = Entry(json.loads(body), body, revision, updated)
            except ValueError:
                logger.error(
                    "An unreadable object in the API's database is skipped",
                    extra={"resource": resource, "namespace": namespace, "object": name},
                )
                continue
            self._entries.setdefault(resource, {})[(namespace, name)] = entry

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._revision

    def close(self) -> None:
        """Close the database. No call may follow."""
        self._db.close()

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        """One object, or None."""
        return self._entries.get(resource, {}).get((namespace, name))

    def entries(self, resource: str, namespace: str | None = None) -> Iterator[tuple[Key, Entry]]:
        """A resource's objects, unsorted; of one namespace or of all (None).

        The caller may write to the store while it iterates.
        """
        found = list(self._entries.get(resource, {}).items())
        return ((k, e) for k, e in found if namespace is None or k[0] == namespace)

    def count(self, resource: str) -> int:
        """How many objects a resource has."""
        return len(self._entries.get(resource, {}))

    def resources(self) -> list[str]:
        """The resources that have objects."""
        return [resource for resource, entries in self._entries.items() if entries]

    def snapshot(
        self, resource: str, namespace: str | None = None
    ) -> tuple[int, list[tuple[Key, Entry]]]:
        """The revision and a resource's objects as they are now, unsorted."""
        return self._revision, list(self.entries(resource, namespace))

    def weight(self, resource: str, namespace: str | None = None) -> int:
        """Length of the JSON of a resource's objects, in characters."""
        return sum(len(entry.text) for _, entry in self.entries(resource, namespace))

    def weight_of_past(self, resource: str) -> int:
        """Length of the JSON of a resource's kept changes, in characters."""
        return self._history.weight(resource)

    def put(
        self,
        resource: str,
        namespace: str,
        name: str,
        obj: JSON,
        text_of: Callable[[int], str] | None = None,
    ) -> JSON:
        """Create or replace an object; returns it with its new resourceVersion.

        Args:
            text_of: the object as JSON for its new revision, if it is encoded already.

        Raises:
            ApiError: 413, it is larger than an object may be.
            sqlite3.Error: nothing was written (such as a full disk).
        """
        revision = self._revision + 1
        now = self._clock.now()
        written = versioned(obj, revision)
        text = text_of(revision) if text_of is not None else _encode(written)
        if len(text) > MAX_OBJECT:
            raise too_large(MAX_OBJECT)
        self._db.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
            (resource, namespace, name, revision, now, text),
        )
        entries = self._entries.setdefault(resource, {})
        old = entries.get((namespace, name))
        entries[(namespace, name)] = Entry(written, text, revision, now)
        self._revision = revision
        kind = "MODIFIED" if old else "ADDED"
        self._history.add(Past(revision, now, kind, resource, text, old.text if old else None))
        self._deliver(Change(revision, kind, resource, written, text, old.object if old else None))
        return written

    def remove(
        self,
        resource: str,
        namespace: str,
        name: str,
        last: JSON | None = None,
        text_of: Callable[[int], str] | None = None,
    ) -> JSON:
        """Remove an object; returns its last state (``last`` if given), newly versioned.

        Args:
            text_of: that state as JSON for its revision, if it is encoded already.

        Raises:
            KeyError: there is none.
            sqlite3.Error: nothing was written.
        """
        old = self._entries[resource][(namespace, name)]
        revision = self._revision + 1
        removed = versioned(last or old.object, revision)
        text = text_of(revision) if text_of is not None else _encode(removed)
        with _transaction(self._db):
            self._db.execute(
                "DELETE FROM objects WHERE resource=? AND namespace=? AND name=?",
                (resource, namespace, name),
            )
            self._db.execute("UPDATE meta SET value=? WHERE key='revision'", (revision,))
        del self._entries[resource][(namespace, name)]
        self._revision = revision
        now = self._clock.now()
        self._history.add(Past(revision, now, "DELETED", resource, text, old.text))
        self._deliver(Change(revision, "DELETED", resource, removed, text, old.object))
        return removed

    def changes_since(self, revision: int, resource: str) -> list[Change]:
        """A resource's changes after ``revision``, oldest first. Raises ApiError 410."""
        return self._history.since(revision, resource)

    def past_since(self, revision: int, resource: str) -> list[Past]:
        """The same, not decoded. Raises ApiError 410."""
        return self._history.past_since(revision, resource)

    def entries_at(
        self, revision: int, resource: str, namespace: str | None = None
    ) -> list[tuple[Key, JSON]]:
        """A resource's objects as they were at ``revision``, unsorted. Raises ApiError 410."""
        then = {key: entry.object for key, entry in self.entries(resource, namespace)}
        if revision == self._revision:
            return list(then.items())
        undo(then, self._history.since(revision, resource), namespace)
        return list(then.items())

    def knows(self, revision: int) -> bool:
        """Whether a watch may start at ``revision``."""
        return self._history.knows(revision)

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` after every write, in the order of revisions; returns how to stop.

        A listener may write: what it writes is delivered after the change at hand.
        """
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def _deliver(self, change: Change) -> None:
        self._undelivered.append(change)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                current = self._undelivered.popleft()
                for listener in tuple(self._listeners):
                    listener(current)
        finally:
            self._delivering = False


def undo(then: dict[Key, JSON], changes: Sequence[Change], namespace: str | None) -> None:
    """Undo changes (oldest first) of a resource in ``then``."""
    for change in reversed(changes):
        meta = change.object["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if namespace is not None and key[0] != namespace:
            continue
        if change.previous is None:
            then.pop(key, None)
        else:
            then[key] = change.previous


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
