"""CrashLoopBackOff: when a container that ended may start again.

Counts from the moment the container ended, not from when the agent saw it. Records contain that
moment in wall time, which may step. It is converted to elapsed time once, when a record is first
seen to have ended, so that a later step of the wall clock does not change a delay. If the wall
clock was set since the container was started, its end counts from when it is first seen: a delay
never ends early.

Goes on after a restart of the agent: the runtime's records contain how often a container was
restarted, and when. These are wall times only: a step of the wall clock while no agent runs may
shorten or lengthen the delay. The rest is never longer than a full delay from when the new agent
sees the end. A boot of the machine ends all delays: what ran at a power cut did not crash. Must
never read a clock or wait: the caller gets a time to come back at.

All times are Unix seconds of :class:`kubeletpy.base.clock.SteadyClock`, where not stated otherwise,
and ``offset`` is by how many seconds the wall clock has been set ahead of it.

Source: docs/reference/behaviour.md, d; KEP-4603.
"""

from __future__ import annotations

import json
import math

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_duration
from kubeletpy.base.structs import Component, Struct
from kubeletpy.pods.backoff import BackoffState, ExponentialBackoff
from kubeletpy.pods.pod import Pod, fnv1a_64
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.runtime_manager.names import container_hash

BASE_SECONDS = 10.0
REDUCED_BASE_SECONDS = 1.0
"""With the gate ReduceDefaultCrashLoopBackOffDecay."""
MAX_ENDS = 8192
"""How many containers' ends are remembered."""
MAX_SECONDS = 300.0
MOST_DOUBLINGS = 32
"""After so many any maximum is reached."""
QUIET_SECONDS = 600.0
"""Whatever the maximum: this long after it was last raised, a delay starts from the base again."""
SET_BY_SECONDS = 0.05
"""The wall clock was set if its offset changed by more; less is the time between two readings."""


class HeldBack(Struct, frozen=True):
    """A start that must wait."""

    due_at: float
    """Unix seconds by the wall clock of now."""
    message: str
    """The text that kubectl shows beside CrashLoopBackOff."""
    event: str
    """Text of the BackOff event."""


class _RestartRecord(Struct, frozen=True):
    """Observations of one container by this agent."""

    restarted_at: float | None
    """When this agent last restarted it; None: an earlier agent did."""
    offset: float
    """That of the wall clock at the restart, or when this agent began."""
    container_id: str = ""
    """The record that was last seen to have ended."""
    ended_at: float = 0.0


class CrashLoopBackoff(Component):
    """The delays of all containers on the node."""

    # Seconds (crashLoopBackOff.maxContainerRestartPeriod).
    maximum: float = MAX_SECONDS
    # Seconds of the first delay, lowered to the maximum.
    base: float = BASE_SECONDS
    # The delays of containers created before this are taken from their records. The offset of the
    # wall clock is 0 then.
    began: float = 0.0
    # When the machine booted (wall time): containers created before that are not delayed.
    booted: float = 0.0

    def __post_init__(self) -> None:
        self._backoff = ExponentialBackoff(self.base, self.maximum, QUIET_SECONDS)
        self._known: dict[str, _RestartRecord] = {}

    def __len__(self) -> int:
        return len(self._backoff)

    def admit(
        self,
        pod: Pod,
        container: api.Container,
        status: PodRuntimeStatus,
        now: float,
        offset: float = 0.0,
    ) -> HeldBack | None:
        """Whether a start must wait; if not, and the container has ended before, count it."""
        name = container["name"]
        ended = [
            record
            for record in status.containers
            if record.name == name and record.state is ContainerState.EXITED
        ]
        if not ended:
            return None
        key = crash_loop_key(pod, container)
        created = ended[0].created_at / 1e9
        if self.booted <= created < self.began and ended[0].hash == container_hash(container):
            earlier = ended[1] if ended[1:] else None
            resumed = resumed_delay(ended[0], earlier, self.maximum, self.base)
            if resumed is not None:
                self._backoff.resume(key, resumed)
        ended_at = self._ended_at(key, ended[0], now, offset)
        due = self._backoff.due_at(key, ended_at, now)
        if due is None:
            self._backoff.next(key, ended_at, now)
            self._remember(key, _RestartRecord(now, offset, ended[0].id, ended_at))
            return None
        delay = format_duration(round(due - ended_at))
        return HeldBack(
            due + offset,
            f"back-off {delay} restarting failed container={name} pod={pod.description}",
            f"Back-off restarting failed container {name} in pod {pod.description}",
        )

    def collect(self, now: float) -> None:
        """Drop delays that no longer count."""
        self._backoff.collect(now)
        self._known = {key: known for key, known in self._known.items() if key in self._backoff}

    def _ended_at(self, key: str, record: ContainerStatus, now: float, offset: float) -> float:
        """When a container ended; the same for each call with one record."""
        known = self._known.get(key) or _RestartRecord(None, 0.0)
        if known.container_id == record.id:
            return known.ended_at
        was_set = abs(offset - known.offset) > SET_BY_SECONDS
        ended_at = now if was_set else min(record.finished_at / 1e9 - offset, now)
        if known.restarted_at is not None:
            ended_at = max(ended_at, known.restarted_at)
        self._remember(key, _RestartRecord(known.restarted_at, known.offset, record.id, ended_at))
        return ended_at

    def _remember(self, key: str, known: _RestartRecord) -> None:
        self._known.pop(key, None)  # changed again: it is the newest now
        self._known[key] = known
        if len(self._known) > MAX_ENDS:
            del self._known[next(iter(self._known))]


def crash_loop_key(pod: Pod, container: api.Container) -> str:
    """The key of a delay: a changed image or changed resources start afresh."""
    resources = json.dumps(container.get("resources") or {}, sort_keys=True)
    parts = (
        pod.name,
        pod.namespace,
        pod.uid,
        container["name"],
        container.get("image") or "",
        resources,
    )
    return format(fnv1a_64("/".join(parts).encode("utf-8", "replace")), "x")


def resumed_delay(
    newest: ContainerStatus, earlier: ContainerStatus | None, maximum: float, base: float
) -> BackoffState | None:
    """The delay in effect after the end of a container that an earlier agent started.

    The restart count bounds it: each restart doubled the delay, unless it began anew in between.
    That shows where the record before is still there: what the container waited for its restart was
    at least the delay of that time. None: it was never restarted.
    """
    if newest.restart_count < 1:
        return None
    base = min(base, maximum)
    doublings = newest.restart_count - 1
    if earlier is not None and earlier.finished_at and newest.created_at >= earlier.finished_at:
        waited = (newest.created_at - earlier.finished_at) / 1e9
        steps = 0 if waited < base else int(math.log2(waited / base)) + 1
        doublings = min(doublings, steps)
    delay = min(base * 2 ** min(doublings, MOST_DOUBLINGS), maximum)
    return BackoffState(delay, newest.created_at / 1e9)
