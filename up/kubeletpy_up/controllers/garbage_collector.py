"""Garbage collection: what the deletion of an object's owners means for it.

Event driven: it checks an object when the object, one of its owners or one of its dependents
changes. Must never delete an object that has an owner left, or whose owner it can't look up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.kinds import meta as ownership
from kubeletpy_up.kinds.meta import FOREGROUND, ORPHAN
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import CONTROLLER, DeleteOptions
from kubeletpy_up.resources import find_kind
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""(resource key, namespace, name)."""
_IGNORED = frozenset({"events"})
_MERGE = "application/merge-patch+json"


class GarbageCollector:
    """Collects a registry's garbage while it runs. Needs a running event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, set[Key]] = {}
        self._waiting: dict[Key, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pass: asyncio.Handle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Start; all existing objects are checked next."""
        self._loop = asyncio.get_running_loop()
        store = self._registry.store
        for resource in store.resources():
            if resource not in _IGNORED:
                for key, entry in store.entries(resource):
                    self._index((resource, *key), entry.object, None)
                    self._soon((resource, *key))
        self._unsubscribe = store.subscribe(self._on_change)

    async def stop(self) -> None:
        """Stop. Objects are left unchanged."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None
        self._loop = None

    def _on_change(self, change: Change) -> None:
        if change.resource in _IGNORED:
            return
        obj, previous = change.object, change.previous
        meta = obj["metadata"]
        key = (change.resource, meta.get("namespace", ""), meta["name"])
        removed = change.type == "DELETED"
        self._index(key, None if removed else obj, previous)
        if removed or ownership.is_waiting_for_dependents(obj):
            for dependent in self._dependents.get(meta["uid"], ()):
                self._soon(dependent)
        if removed:
            for owner in self._owners(obj):
                self._soon(owner)
        elif ownership.matters(obj):
            self._soon(key)

    def _index(self, key: Key, obj: JSON | None, previous: JSON | None) -> None:
        """Keep track of whose dependent an object is."""
        for uid in ownership.owner_uids(previous):
            known = self._dependents.get(uid, set())
            known.discard(key)
            if not known:
                self._dependents.pop(uid, None)
        for uid in ownership.owner_uids(obj):
            self._dependents.setdefault(uid, set()).add(key)

    def _owners(self, obj: JSON) -> Iterator[Key]:
        for reference in obj["metadata"].get("ownerReferences") or ():
            key, _ = self._owner_key(obj, reference)
            if key is not None:
                yield key

    def _soon(self, key: Key) -> None:
        self._waiting[key] = None
        if self._pass is None and self._loop is not None:
            self._pass = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._pass = None
        waiting, self._waiting = list(self._waiting), {}
        for key in waiting:
            try:
                self._check(key)
            except ApiError as error:
                if error.code not in (404, 409):  # removed or changed meanwhile
                    about = {"object": "/".join(key), "error": str(error)}
                    logger.warning("An object was not collected", extra=about)

    def _check(self, key: Key) -> None:
        obj = self._registry.find(*key)
        if obj is None:
            return
        if obj["metadata"].get("deletionTimestamp"):
            self._finish(key, obj)
        elif obj["metadata"].get("ownerReferences"):
            self._judge(key, obj)

    def _finish(self, key: Key, obj: JSON) -> None:
        """Handle an object being deleted, according to its finalizers."""
        finalizers = obj["metadata"].get("finalizers") or ()
        uid = obj["metadata"]["uid"]
        dependents = [
            (other, found)
            for other in sorted(self._dependents.get(uid, ()))
            if (found := self._registry.find(*other)) is not None
        ]
        if ORPHAN in finalizers:
            for other, found in dependents:
                self._disown(other, found, {uid})
            self._let_go(key, ORPHAN)
        elif FOREGROUND in finalizers and not any(
            ownership.blocks(found, uid) for _, found in dependents
        ):
            self._let_go(key, FOREGROUND)

    def _judge(self, key: Key, obj: JSON) -> None:
        """Handle a live object, by the state of its owners."""
        states: dict[str, str] = {}
        for reference in obj["metadata"]["ownerReferences"]:
            owner, known = self._owner_key(obj, reference)
            if not known:
                return
            found = self._registry.find(*owner) if owner else None
            states[reference["uid"]] = ownership.state(found, reference)
        verdict = ownership.judge(
            obj, states, has_dependents=obj["metadata"]["uid"] in self._dependents
        )
        if verdict.disown:
            self._disown(key, obj, verdict.disown)
        elif verdict.delete:
            options = DeleteOptions(uid=obj["metadata"]["uid"], propagation=verdict.delete)
            self._registry.delete(CONTROLLER, key[0], key[2], key[1], options)

    def _owner_key(self, obj: JSON, reference: JSON) -> tuple[Key | None, bool]:
        """Where an owner is stored, and whether its kind is known."""
        info = find_kind(reference["apiVersion"], reference["kind"])
        if info is None:
            return None, False
        namespace = obj["metadata"].get("namespace", "")
        if info.namespaced and not namespace:
            return None, False
        return (info.storage_key, namespace if info.namespaced else "", reference["name"]), True

    def _disown(self, key: Key, obj: JSON, uids: set[str]) -> None:
        kept = [r for r in obj["metadata"]["ownerReferences"] if r["uid"] not in uids]
        self._patch(key, {"uid": obj["metadata"]["uid"], "ownerReferences": kept or None})

    def _let_go(self, key: Key, finalizer: str) -> None:
        found = self._registry.find(*key)
        if found is None:
            return
        kept = [each for each in found["metadata"]["finalizers"] if each != finalizer]
        self._patch(key, {"uid": found["metadata"]["uid"], "finalizers": kept or None})

    def _patch(self, key: Key, metadata: JSON) -> None:
        resource, namespace, name = key
        self._registry.patch(
            CONTROLLER, resource, name, {"metadata": metadata}, namespace, patch_type=_MERGE
        )
