"""Limits Events: counts identical ones, combines similar ones, and stops floods. Pure.

Time is an argument; memory is bounded. Source:
docs/reference/constants.csv: events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
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
"""Items of each kind."""
MESSAGE_MAX = 1024
COMBINED = "(combined from similar events): "

V = TypeVar("V", bound="_Seen")


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


class _Seen(Struct):
    last: float
    """When it was used last."""


class _SimilarEvents(_Seen):
    messages: set[str] = field(default_factory=set)


class _ReportedEvent(_Seen):
    first: float = 0.0
    count: int = 0
    name: str = ""


class _Bucket(_Seen):
    tokens: float = SPAM_BURST


class _Recent(Generic[V]):
    """A bounded map that forgets what was not used for some time, least recently used first."""

    def __init__(self, make: Callable[[float], V], lifetime: float) -> None:
        self._make = make
        self._lifetime = lifetime
        self._items: OrderedDict[tuple[str, ...], V] = OrderedDict()

    def get(self, key: tuple[str, ...], now: float) -> V:
        """The item, a new one if it is unknown or forgotten. Its user moves ``last``."""
        value = self._items.pop(key, None)
        if value is None or self._is_old(value, now):
            value = self._make(now)
        self._items[key] = value
        while len(self._items) > REMEMBERED or self._is_old(next(iter(self._items.values())), now):
            self._items.popitem(last=False)
        return value

    def _is_old(self, value: V, now: float) -> bool:
        return now - value.last > self._lifetime


class Correlator(Component):
    """Remembers what was reported. ``component`` and ``host`` name the reporter."""

    component: str
    host: str

    def __post_init__(self) -> None:
        self._similar = _Recent(_SimilarEvents, WINDOW)
        self._known = _Recent(_ReportedEvent, WINDOW)
        self._buckets = _Recent(_Bucket, SPAM_BURST * SPAM_REFILL)  # then it is full
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
        known = self._known.get(key, now)
        if known.count == 0:
            known.first, known.name = now, self._new_name(seen.involved, now)
        known.count += 1
        known.last = now
        if not self._take_token(about, now):
            if known.count == 1:
                known.count = 0
            return Drop("too many events about one object")
        obj = self._event(seen, message, known)
        if known.count == 1:
            return Create(obj)
        fields = ("count", "lastTimestamp", "message")
        return Count(obj, {name: obj[name] for name in fields})

    def _is_one_of_many(self, key: tuple[str, ...], message: str, now: float) -> bool:
        similar = self._similar.get(key, now)
        similar.last = now
        if message in similar.messages:
            return False
        if len(similar.messages) >= SIMILAR_MAX:
            return True
        similar.messages.add(message)
        return False

    def _take_token(self, about: tuple[str, ...], now: float) -> bool:
        # fieldPath is ignored: the containers of an object share its bucket.
        bucket = self._buckets.get(about[:-1], now)
        earned = max(now - bucket.last, 0.0) / SPAM_REFILL
        bucket.tokens = min(SPAM_BURST, bucket.tokens + earned)
        bucket.last = now
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
