"""Base of the storage controllers: changed objects are reconciled once, in the next turn.

Must never reconcile inside the write that reported a change: one pass covers all changes of a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import CONTROLLER, Caller
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""(resource key, namespace, name)."""
RETRY_S = 15.0
"""Delay after which an object whose write was refused is reconciled again."""


def key_of(resource: str, obj: JSON) -> Key:
    """The key of an object."""
    about = obj["metadata"]
    return resource, about.get("namespace", ""), about["name"]


class Reconciler:
    """Reconciles objects of a registry while it runs. Needs a running event loop.

    Subclasses define which objects a change concerns (:meth:`concerned`), which to reconcile after
    a start (:meth:`everything`), and how to reconcile one (:meth:`check`).
    """

    component = "controller"
    """The source of its events."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Key, None] = {}
        self._pass: asyncio.Handle | None = None
        self._retries: dict[Key, asyncio.TimerHandle] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._notified: dict[str, tuple[str, str]] = {}

    def start(self) -> None:
        """Start, with every existing object."""
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = self.registry.store.subscribe(self._on_change)
        self.again(self.everything())

    async def stop(self) -> None:
        """Stop. Objects are left unchanged."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        self._loop = None

    def everything(self) -> Iterable[Key]:
        """The objects to reconcile after a start."""
        raise NotImplementedError

    def concerned(self, change: Change) -> Iterable[Key]:
        """The objects to reconcile after a change."""
        raise NotImplementedError

    def check(self, key: Key) -> None:
        """Reconcile one object, which may no longer exist. Raises ApiError: it is retried later."""
        raise NotImplementedError

    def again(self, keys: Iterable[Key]) -> None:
        """Reconcile these in the next turn."""
        if self._loop is None:
            return
        self._waiting.update(dict.fromkeys(keys))
        if self._waiting and self._pass is None:
            self._pass = self._loop.call_soon(self._run)

    def later(self, key: Key, seconds: float) -> None:
        """Reconcile one after a delay; once, however often this is called."""
        if self._loop is not None and key not in self._retries:
            self._retries[key] = self._loop.call_later(seconds, self._retry, key)

    def _retry(self, key: Key) -> None:
        self._retries.pop(key, None)
        self.again([key])

    def _on_change(self, change: Change) -> None:
        if change.type == "DELETED":
            self._notified.pop(change.object["metadata"].get("uid", ""), None)
        self.again(self.concerned(change))

    def _run(self) -> None:
        self._pass = None
        keys, self._waiting = self._waiting, {}
        for key in keys:
            try:
                self.check(key)
            except ApiError as error:
                about = {"resource": key[0], "namespace": key[1], "object": key[2]}
                logger.warning("An object can't be updated", extra={**about, "error": str(error)})
                self.later(key, RETRY_S)

    def find(self, key: Key) -> JSON | None:
        """An object, or None."""
        return self.registry.find(*key)

    def all_of(self, resource: str, namespace: str | None = None) -> list[JSON]:
        """All objects of a resource, of one namespace or of all."""
        return [entry.object for _, entry in self.registry.store.entries(resource, namespace)]

    def write(self, resource: str, obj: JSON, *, old: JSON, status: bool = False) -> JSON:
        """Update an object if it differs; returns the stored one. Raises ApiError."""
        if obj == old:
            return old
        about = obj["metadata"]
        return self.registry.update(
            CONTROLLER,
            resource,
            obj,
            about.get("namespace") or None,
            name=about["name"],
            subresource="status" if status else "",
        )

    def report(self, kind: str, obj: JSON, severity: str, reason: str, message: str) -> None:
        """Write an event about an object, unless its last one was the same."""
        uid = obj["metadata"]["uid"]
        if self._notified.get(uid) == (reason, message):
            return
        self._notified[uid] = (reason, message)
        about = {
            "kind": kind,
            "apiVersion": obj.get("apiVersion", "v1"),
            "metadata": obj["metadata"],
        }
        write_event(
            self.registry,
            CONTROLLER,
            self.component,
            about,
            severity=severity,
            reason=reason,
            message=message,
        )


def write_event(
    registry: Registry,
    caller: Caller,
    component: str,
    about: JSON,
    *,
    severity: str,
    reason: str,
    message: str,
    action: str = "",
) -> None:
    """Write an event; one that can't be written is only logged.

    Args:
        about: the object, with its kind, apiVersion and metadata.
        severity: Normal or Warning.
    """
    meta = about["metadata"]
    now = registry.clock.now()
    moment = format_time(now)
    namespace = meta.get("namespace") or ""
    involved = {key: meta.get(key) or "" for key in ("name", "uid", "resourceVersion")}
    number = int(now * 1e9)
    while registry.find("events", namespace or "default", f"{meta['name']}.{number:x}"):
        number += 1  # another event of the same instant
    event: JSON = {
        "metadata": {"name": f"{meta['name']}.{number:x}"},
        "involvedObject": {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            **({"namespace": namespace} if namespace else {}),
            **involved,
        },
        "type": severity,
        "reason": reason,
        "message": message,
        **({"action": action} if action else {}),
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    try:
        registry.create(caller, "events", event, namespace or "default")
    except ApiError as error:
        logger.debug("An event was not written", extra={"error": str(error)})
