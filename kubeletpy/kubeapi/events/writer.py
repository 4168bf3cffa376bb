"""Sinks of Kubernetes Events: the API, the log, and the latest ones of each pod in memory.

Must never hold up or fail its callers: events that do not fit into the queue, or cannot be written,
are counted and dropped. :mod:`kubeletpy.kubeapi.events.correlate` decides which are written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import Backlog
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, NotFound, TooManyRequests, Unavailable
from kubeletpy.kubeapi.events.correlate import Correlator, Count, Create, Drop, ObjectEvent
from kubeletpy.kubeapi.events.reasons import EventReason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, EventType
from kubeletpy.kubeapi.protocol import EVENTS, KubeApi

logger = logging.getLogger(__name__)

QUEUE_SIZE = 1000
TRIES = 12
RETRY_SECONDS = 10.0
WAITS_AT_MOST_S = 10.0
"""Seconds that a Normal event waits for pods that wait to start or stop. A pod's start has three of
them, each a write to the API server, which is what a burst waits for most."""
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""The cause in the details of a 403 (corev1.NamespaceTerminatingCause)."""
_Queue = asyncio.Queue[tuple[float, ObjectEvent]]
"""Events with the Unix time at which they were recorded."""


class EventWriter(Component):
    """An :class:`~kubeletpy.kubeapi.events.recorder.EventRecorder` that writes to the API.

    Give it a client with the rate limit of events (eventRecordQPS, eventBurst).

    Attributes:
        dropped: how many events were not written, by reason.
    """

    kube_api: KubeApi
    clock: Clock
    node_name: str
    backlog: Backlog
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._correlator = Correlator("kubelet", self.node_name)
        self._normal: _Queue = asyncio.Queue(QUEUE_SIZE)
        self._warnings: _Queue = asyncio.Queue(QUEUE_SIZE)
        self.dropped: Counter[str] = Counter()

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record one event about an object. ``message`` must hold no secret."""
        observation = ObjectEvent(involved, event_type, str(reason), message, annotations or {})
        queue = self._normal if event_type == NORMAL else self._warnings
        try:
            queue.put_nowait((self.clock.now(), observation))
        except asyncio.QueueFull:
            self.dropped["queue full"] += 1

    async def write_warnings(self) -> None:
        """Write Warning events until cancelled."""
        await self._write_all(self._warnings)

    async def write_normal(self) -> None:
        """Write Normal events until cancelled, after pods that wait to start or stop."""
        await self._write_all(self._normal, WAITS_AT_MOST_S)

    async def drain(self) -> None:
        """Wait until everything recorded so far is written or dropped; the caller sets a limit."""
        await self._warnings.join()
        await self._normal.join()

    async def _write_all(self, queue: _Queue, wait: float = 0.0) -> None:
        while True:
            when, observation = await queue.get()
            try:
                await self.backlog.cleared(min(wait, when + wait - self.clock.now()))
                await self._write(when, observation)
            except Exception:  # one event that cannot be written must not stop the others
                self.dropped["internal error"] += 1
                logger.exception("event not written", extra={"reason": observation.reason})
            finally:
                queue.task_done()

    async def _write(self, when: float, observation: ObjectEvent) -> None:
        decision = self._correlator.correlate(observation, when)
        if isinstance(decision, Drop):
            self.dropped[decision.reason] += 1
            return
        for attempt in range(TRIES):
            if attempt:
                # The first delay is random: many nodes may have lost the same server.
                factor = self.rng.random() if attempt == 1 else 1.0
                await asyncio.sleep(RETRY_SECONDS * factor)
            try:
                await self._send(decision)
            except (Unavailable, TooManyRequests):
                continue
            except ApiError as error:
                self.dropped[error.reason or "refused"] += 1
                extra = {
                    "reason": observation.reason,
                    "object": observation.involved.get("name", ""),
                    "error": error.message,
                }
                # A terminating namespace accepts no new events, and every pod in it emits some.
                level = logging.DEBUG if _namespace_ends(error) else logging.INFO
                logger.log(level, "event refused", extra=extra)
            return
        self.dropped["API not reachable"] += 1

    async def _send(self, decision: Create | Count) -> None:
        metadata = decision.obj["metadata"]
        namespace = metadata["namespace"]
        if isinstance(decision, Count):
            with suppress(NotFound):
                await self.kube_api.patch(EVENTS, metadata["name"], decision.patch, namespace)
                return
        with suppress(AlreadyExists):  # an attempt that seemed to fail was written after all
            await self.kube_api.create(EVENTS, decision.obj, namespace)


def _namespace_ends(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == NAMESPACE_TERMINATING for cause in causes
    )


# An agent without an API writes its events to the log.


class LogRecorder:
    """An :class:`~kubeletpy.kubeapi.events.recorder.EventRecorder` that logs."""

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Log one event; only warnings are shown by default."""
        level = logging.WARNING if event_type == WARNING else logging.DEBUG
        name = f"{involved.get('namespace', '')}/{involved.get('name', '')}".lstrip("/")
        logger.log(
            level, message, extra={"reason": reason, "kind": involved.get("kind"), "object": name}
        )


# The latest events of each pod, for explain and the view; bounded. The API keeps events for an hour
# and counts similar ones; an agent without an API has no other place for them. Each event is kept
# and passed on.

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


class KeptEvents(Component):
    """An :class:`~kubeletpy.kubeapi.events.recorder.EventRecorder` that keeps what it hands on."""

    to: EventRecorder
    clock: Clock

    def __post_init__(self) -> None:
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
            now = self.clock.now()
            path = involved.get("fieldPath", "")
            self._add_event(
                uid, KeptEvent(now, event_type, str(reason), message[:MAX_MESSAGE], path, 1, now)
            )
        self.to.event(involved, event_type, reason, message, annotations=annotations)

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
