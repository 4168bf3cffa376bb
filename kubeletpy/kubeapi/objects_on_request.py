"""Objects that pods use, read when they are requested: the strategies ``Cache`` and ``Get``.

Nothing is watched: a changed object is found when a pod is synced. With ``Cache`` an object is read
again once it is older than the node's annotation allows; if that fails, or takes long, the last one
stays valid. A pod that is new to an object never gets one that was read before. With ``Get`` each
caller gets an object whose read began after the request. Immutable objects are read once. Must
never log what an object holds.

Source: docs/reference/config.csv: configMapAndSecretChangeDetectionStrategy; constants.csv:
objects, Cache TTL default; names.csv: node.alpha.kubernetes.io/ttl.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi import tracked_object
from kubeletpy.kubeapi.errors import ApiError, Unavailable
from kubeletpy.kubeapi.objects import FIRST_ANSWER_S
from kubeletpy.kubeapi.protocol import KubeApi

DEFAULT_TTL_S = 60.0
TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"


def object_ttl(node: Mapping[str, Any]) -> float:
    """Seconds for which an object counts as current, from the node's annotation."""
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(TTL_ANNOTATION, "")
    return float(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else DEFAULT_TTL_S


class _Item(HidesFields, Struct):
    """An object that pods use. Registrations, requests and reads are numbered in one sequence.

    Attributes:
        registered: number of the last registration: what was read before is not for that pod.
        read: number of the read that gave ``object``; 0: nothing is known.
        read_at: when that read began, on the loop's clock.
        ended: number of the last read that has ended.
        error: why that one failed.
    """

    users: set[str] = field(default_factory=set)
    registered: int = 0
    read: int = 0
    read_at: float = 0.0
    object: Hidden[JSON | None] = None
    ended: int = 0
    error: ApiError | None = None
    reading: asyncio.Task[None] | None = None

    @property
    def is_current(self) -> bool:
        """Whether ``object`` is for all of the pods."""
        return self.read > self.registered


class ObjectsOnRequest(Component):
    """Implements :class:`~kubeletpy.kubeapi.tracked_object.PodObjects` without watches."""

    api: KubeApi
    ttl: Callable[[], float] | None
    """For how many seconds an object counts as current; None: not at all (``Get``)."""

    def __post_init__(self) -> None:
        self._reader = tracked_object.ObjectReader(self.api)
        self._items: dict[tracked_object.ObjectKey, _Item] = {}
        self._keys: dict[str, frozenset[tracked_object.ObjectKey]] = {}
        self._wake: Callable[[str], None] = lambda uid: None
        self._numbers = itertools.count(1)

    def on_change(self, wake: Callable[[str], None]) -> None:
        """With ``Cache``, pods that share an object hear of a change that one of them has found."""
        self._wake = wake

    def register(
        self,
        uid: str,
        live: Collection[tracked_object.ObjectKey],
        on_demand: Collection[tracked_object.ObjectKey] = (),
    ) -> None:
        desired, before = frozenset((*live, *on_demand)), self._keys.pop(uid, frozenset())
        if desired:
            self._keys[uid] = desired
        for key in desired - before:
            item = self._items.setdefault(key, _Item())
            item.users.add(uid)
            item.registered = next(self._numbers)
        for key in before - desired:
            item = self._items[key]
            item.users.remove(uid)
            if not item.users:
                del self._items[key]
                if item.reading is not None:
                    item.reading.cancel()

    def unread(self, uid: str) -> Collection[tracked_object.ObjectKey]:
        """None: nothing is watched."""
        return ()

    def release(self, uid: str) -> None:
        self.register(uid, ())

    async def get(self, key: tracked_object.ObjectKey) -> JSON | None:
        item = self._items.get(key)
        if item is None:
            raise Unavailable(f'object "{key.namespace}"/"{key.name}" not registered')
        if self._is_current(item):
            return item.object
        requested = next(self._numbers)
        patience = FIRST_ANSWER_S if item.is_current and self.ttl is not None else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while item.ended < requested and not self._is_current(item):
                    await asyncio.wait([self._reading(key, item)])
        if not (item.is_current or item.read > requested):
            raise item.error or Unavailable(f"{tracked_object.reported(key)} could not be read")
        return item.object

    async def close(self) -> None:
        """Cancel all requests and forget the objects."""
        reads = [item.reading for item in self._items.values() if item.reading is not None]
        self._items.clear()
        self._keys.clear()
        await cancel_tasks(reads)

    def _is_current(self, item: _Item) -> bool:
        """Whether no read is needed."""
        if not item.is_current:
            return False
        if tracked_object.is_immutable(item.object):
            return True
        if self.ttl is None:
            return False
        return asyncio.get_running_loop().time() < item.read_at + self.ttl()

    def _reading(self, key: tracked_object.ObjectKey, item: _Item) -> asyncio.Task[None]:
        """The read that is under way, or a new one."""
        if item.reading is None:
            name = f"read {tracked_object.reported(key)}"
            item.reading = asyncio.create_task(self._read_object(key, item), name=name)
        return item.reading

    async def _read_object(self, key: tracked_object.ObjectKey, item: _Item) -> None:
        number, begun = next(self._numbers), asyncio.get_running_loop().time()
        # a mere re-check may be answered from the server's cache, as with the kubelet
        of_cache = "0" if item.is_current and self.ttl is not None else ""
        try:
            found = await self._reader.read_object(
                key, first=not item.read, resource_version=of_cache
            )
        except ApiError as error:
            item.error = error
            if self.ttl is None:
                item.read = 0
        else:
            item.error = None
            changed = self._store(item, found)
            item.read, item.read_at = number, begun
            if changed and self.ttl is not None:
                for uid in list(item.users):
                    self._wake(uid)
        finally:
            item.ended, item.reading = number, None

    @staticmethod
    def _store(item: _Item, found: JSON | None) -> bool:
        """Keep what was read; returns whether it differs from what was known."""
        before = item.object if item.read else None
        if before and found and tracked_object.revision(found) < tracked_object.revision(before):
            return False  # a server's cache may be behind
        changed = bool(item.read) and tracked_object.version(found) != tracked_object.version(
            before
        )
        item.object = None if found is None else tracked_object.worth_keeping(found)
        return changed
