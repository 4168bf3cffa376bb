"""Writes Kubernetes Events: accepts them without ever blocking, sends them one by one.

Must never hold up or fail its callers: what does not fit into the queue, or cannot be written, is
counted and dropped. :mod:`kubeletpy.events.correlate` decides what is written.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.events.correlate import Correlator, Count, Create, Drop, ObjectEvent
from kubeletpy.events.reasons import EventReason
from kubeletpy.events.recorder import EventType
from kubeletpy.kubeapi.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from kubeletpy.kubeapi.protocol import EVENTS, KubeApi

logger = logging.getLogger(__name__)

QUEUE_SIZE = 1000
TRIES = 12
RETRY_SECONDS = 10.0
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""The cause in the details of a 403 (corev1.NamespaceTerminatingCause)."""


class EventWriter:
    """An :class:`~kubeletpy.events.recorder.EventRecorder` that writes to the API.

    Give it a client with the rate limit of events (eventRecordQPS, eventBurst).

    Attributes:
        dropped: how many events were not written, by reason.
    """

    def __init__(
        self, api_: KubeApi, clock: Clock, node_name: str, *, rng: random.Random | None = None
    ) -> None:
        self._api = api_
        self._clock = clock
        self._correlator = Correlator("kubelet", node_name)
        self._queue: asyncio.Queue[tuple[float, ObjectEvent]] = asyncio.Queue(QUEUE_SIZE)
        self._rng = rng or random.Random()
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
        try:
            self._queue.put_nowait((self._clock.now(), observation))
        except asyncio.QueueFull:
            self.dropped["queue full"] += 1

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            when, observation = await self._queue.get()
            try:
                await self._write(when, observation)
            except Exception:  # one event that cannot be written must not stop the others
                self.dropped["internal error"] += 1
                logger.exception("event not written", extra={"reason": observation.reason})
            finally:
                self._queue.task_done()

    async def drain(self) -> None:
        """Wait until everything recorded so far is written or dropped; the caller sets a limit."""
        await self._queue.join()

    async def _write(self, when: float, observation: ObjectEvent) -> None:
        decision = self._correlator.correlate(observation, when)
        if isinstance(decision, Drop):
            self.dropped[decision.reason] += 1
            return
        for attempt in range(TRIES):
            if attempt:
                # The first delay is random: many nodes may have lost the same server.
                factor = self._rng.random() if attempt == 1 else 1.0
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
                await self._api.patch(EVENTS, metadata["name"], decision.patch, namespace)
                return
        with suppress(AlreadyExists):  # an attempt that seemed to fail was written after all
            await self._api.create(EVENTS, decision.obj, namespace)


def _namespace_ends(error: ApiError) -> bool:
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == NAMESPACE_TERMINATING for cause in causes
    )
