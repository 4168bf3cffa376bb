"""Limits Events: counts identical ones, combines similar ones, and stops floods. Pure.

Time is an argument; memory is bounded (the least recently used is forgotten). Source:
docs/reference/constants.csv: events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Struct, field

WINDOW = 600.0
"""Seconds within which events count as the same or similar."""
SIMILAR_MAX = 10
SPAM_BURST = 25.0
SPAM_REFILL = 300.0
"""Seconds after which a source may send one more event about an object."""
REMEMBERED = 4096
MESSAGE_MAX = 1024
COMBINED = "(combined from similar events): "

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ObjectEvent(Struct, frozen=True):
    """Something to report about an object."""

    involved: api.ObjectReference
    type: str
    reason: str
    message: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For a new Event, not for one whose count is raised."""


class Create(Struct, frozen=True):
    """Write a new Event. ``obj`` is complete."""

    obj: JSON


class Count(Struct, frozen=True):
    """The Event exists: ``patch`` raises its count. ``obj`` is complete, in case it was removed."""

    obj: JSON
    patch: JSON


class Drop(Struct, frozen=True):
    """The event is not written, for a reason."""

    reason: str


class _Recent(Generic[K, V]):
    """A bounded map that forgets the least recently used items."""

    def __init__(self) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        value = self._items.get(key)
        if value is None:
            value = self._items[key] = make()
            if len(self._items) > REMEMBERED:
                self._items.popitem(last=False)
        else:
            self._items.move_to_end(key)
        return value


class _Similar(Struct):
    last: float
    messages: set[str] = field(default_factory=set)


class _ReportedEvent(Struct):
    last: float = float("-inf")
    first: float = 0.0
    count: int = 0
    name: str = ""


class _Bucket(Struct):
    updated: float
    tokens: float = SPAM_BURST


class Correlator(Component):
    """Remembers what was reported. ``component`` and ``host`` name the reporter."""

    component: str
    host: str

    def __post_init__(self) -> None:
        self._similar: _Recent[tuple[str, ...], _Similar] = _Recent()
        self._known: _Recent[tuple[str, ...], _ReportedEvent] = _Recent()
        self._buckets: _Recent[tuple[str, ...], _Bucket] = _Recent()
        self._last_stamp = 0

    def correlate(self, seen: ObjectEvent, now: float) -> Create | Count | Drop:
        """The write that an observation requires.

        Args:
            now: Unix seconds at which it was made.
        """
        about = _identity(seen.involved)
        message = cut(seen.message)
        key = (*about, seen.type, seen.reason)
        if self._is_one_of_many(key, message, now):
            message = cut(COMBINED + seen.message)
        else:
            key = (*key, message)
        known = self._known.get(key, _ReportedEvent)
        if now - known.last > WINDOW:
            known.first, known.count, known.name = now, 0, self._new_name(seen.involved, now)
        known.count += 1
        known.last = now
        if not self._take_token(about, now):
            if known.count == 1:
                known.last = float("-inf")
            return Drop("too many events about one object")
        obj = self._event(seen, message, known)
        if known.count == 1:
            return Create(obj)
        fields = ("count", "lastTimestamp", "message")
        return Count(obj, {name: obj[name] for name in fields})

    def _is_one_of_many(self, key: tuple[str, ...], message: str, now: float) -> bool:
        similar = self._similar.get(key, lambda: _Similar(now))
        if now - similar.last > WINDOW:
            similar.messages.clear()
        similar.last = now
        if message in similar.messages:
            return False
        if len(similar.messages) >= SIMILAR_MAX:
            return True
        similar.messages.add(message)
        return False

    def _take_token(self, about: tuple[str, ...], now: float) -> bool:
        # fieldPath is ignored: the containers of an object share its bucket.
        bucket = self._buckets.get(about[:-1], lambda: _Bucket(now))
        earned = max(now - bucket.updated, 0.0) / SPAM_REFILL
        bucket.tokens = min(SPAM_BURST, bucket.tokens + earned)
        bucket.updated = now
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _new_name(self, involved: api.ObjectReference, now: float) -> str:
        self._last_stamp = max(int(now * 1e9), self._last_stamp + 1)
        return f"{involved.get('name', '')}.{self._last_stamp:x}"

    def _event(self, seen: ObjectEvent, message: str, known: _ReportedEvent) -> JSON:
        namespace = seen.involved.get("namespace") or "default"
        metadata: JSON = {"name": known.name, "namespace": namespace}
        if seen.annotations:
            metadata["annotations"] = dict(seen.annotations)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": dict(seen.involved),
            "type": seen.type,
            "reason": seen.reason,
            "message": message,
            "source": {"component": self.component, "host": self.host},
            "firstTimestamp": format_time(known.first),
            "lastTimestamp": format_time(known.last),
            "count": known.count,
            "reportingComponent": self.component,
            "reportingInstance": self.host,
        }


def _identity(involved: api.ObjectReference) -> tuple[str, ...]:
    return (
        involved.get("kind", ""),
        involved.get("namespace", ""),
        involved.get("name", ""),
        involved.get("uid", ""),
        involved.get("fieldPath", ""),
    )


def cut(message: str) -> str:
    """At most 1024 bytes of a message, never half a character."""
    raw = message.encode("utf-8", "replace")
    if len(raw) <= MESSAGE_MAX:
        return raw.decode()
    return raw[: MESSAGE_MAX - 3].decode("utf-8", "ignore") + "..."
