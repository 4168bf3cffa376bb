"""The latest events of each pod, kept in memory for explain and the view; bounded.

The API keeps events for an hour and counts similar ones; an agent without an API has no other place
for them. Recording stays what it is for everybody else: an event is kept and handed on.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct, replace
from kubeletpy.kubeapi.events.reasons import EventReason
from kubeletpy.kubeapi.events.recorder import AnnotatingRecorder, EventType

MAX_PODS = 200
MAX_EVENTS = 20
"""Maximum number of events of one pod."""
MAX_MESSAGE = 1024
"""Characters: the API's own limit."""


class KeptEvent(Struct, frozen=True):
    """One event; the same again within the last ones only counts. Times are Unix seconds."""

    at: float
    type: str
    reason: str
    message: str
    field_path: str
    """Field path of the container, such as ``spec.containers{main}``; empty for the pod."""
    count: int = 1
    first_at: float = 0.0


class KeptEvents:
    """An :class:`~kubeletpy.kubeapi.events.recorder.AnnotatingRecorder` that keeps what it hands on."""

    def __init__(self, to: AnnotatingRecorder, clock: Clock) -> None:
        self._to = to
        self._clock = clock
        self._pods: OrderedDict[str, deque[KeptEvent]] = OrderedDict()

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Keep an event about a pod, and record it."""
        if involved.get("kind") == "Pod" and (uid := involved.get("uid")):
            now = self._clock.now()
            path = involved.get("fieldPath", "")
            self._add_event(
                uid,
                KeptEvent(now, event_type, str(reason), message[:MAX_MESSAGE], path, 1, now),
            )
        self._to.event(involved, event_type, reason, message, annotations=annotations)

    def events(self, uid: str) -> list[KeptEvent]:
        """The latest events of a pod, oldest first."""
        return list(self._pods.get(uid, ()))

    def _add_event(self, uid: str, event: KeptEvent) -> None:
        events = self._pods.setdefault(uid, deque(maxlen=MAX_EVENTS))
        self._pods.move_to_end(uid)
        for known in events:
            if _event_key(known) == _event_key(event):
                events.remove(known)
                event = replace(event, count=known.count + 1, first_at=known.first_at)
                break
        events.append(event)
        while len(self._pods) > MAX_PODS:
            self._pods.popitem(last=False)


def _event_key(event: KeptEvent) -> tuple[str, ...]:
    return event.type, event.reason, event.message, event.field_path
