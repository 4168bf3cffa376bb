"""CrashLoopBackOff: when a container that ended may start again.

Counts from the moment the container ended, not from when the agent saw it. Goes on after a restart
of the agent: the runtime's records contain how often a container was restarted, and when. Must
never read a clock or wait: the caller gets a time to come back at.

Source: docs/reference/behaviour.md, d; KEP-4603.
"""

from __future__ import annotations

import json
import math

from kubeletpy.api import types as api
from kubeletpy.api.durations import format_duration
from kubeletpy.pods.backoff import BackoffState, ExponentialBackoff
from kubeletpy.pods.fnv import fnv1a_64
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.runtime_manager.names.container_hash import container_hash
from kubeletpy.structs import Struct

BASE_SECONDS = 10.0
MAX_AHEAD = 8192
"""How many containers' ends in the future are remembered."""
MAX_SECONDS = 300.0
MOST_DOUBLINGS = 32
"""After so many any maximum is reached."""
QUIET_SECONDS = 600.0
"""Whatever the maximum: this long after it was last raised, a delay starts from the base again."""


class HeldBack(Struct, frozen=True):
    """A start that must wait."""

    due_at: float
    """Unix seconds."""
    message: str
    """As kubectl shows it beside CrashLoopBackOff."""
    event: str
    """Text of the BackOff event."""


class CrashLoopBackoff:
    """The delays of all containers on the node."""

    def __init__(self, maximum: float = MAX_SECONDS, began: float = 0.0) -> None:
        """Args:
        maximum: in seconds (crashLoopBackOff.maxContainerRestartPeriod).
        began: Unix seconds; the delays of containers created before are taken from their records.
        """
        self._maximum = maximum
        self._began = began
        self._backoff = ExponentialBackoff(BASE_SECONDS, maximum, QUIET_SECONDS)
        self._ahead: dict[str, tuple[float, float]] = {}
        """Ends in the future, by key: when that is, and when it was first seen."""

    def __len__(self) -> int:
        return len(self._backoff)

    def check(self, key: str, finished_at: float, now: float) -> float | None:
        """When a container that ended at ``finished_at`` may start; None: now. Unix seconds.

        An end in the future (a clock was set back) counts from when it is first seen.
        """
        return self._backoff.due_at(key, self._ended(key, finished_at, now), now)

    def next(self, key: str, finished_at: float, now: float) -> float:
        """The container is being restarted after that end: raise its next delay (seconds)."""
        ended = self._ended(key, finished_at, now)
        self._ahead.pop(key, None)  # the next end may have the same time
        return self._backoff.next(key, ended, now)

    def admit(
        self, pod: Pod, container: api.Container, status: PodRuntimeStatus, now: float
    ) -> HeldBack | None:
        """Whether a start must wait; if not, and the container has ended before, count it."""
        name = container["name"]
        finished_at = last_finished_at(status, name)
        if finished_at is None:
            return None
        key = crash_loop_key(pod, container)
        ended = [record for record in status.containers if _has_ended(record, name)]
        if ended[0].created_at / 1e9 < self._began and ended[0].hash == container_hash(container):
            resumed = resumed_delay(ended[0], ended[1] if ended[1:] else None, self._maximum)
            if resumed is not None:
                self._backoff.resume(key, resumed)
        due = self.check(key, finished_at, now)
        if due is None:
            self.next(key, finished_at, now)
            return None
        delay = format_duration(round(due - self._ended(key, finished_at, now)))
        return HeldBack(
            due,
            f"back-off {delay} restarting failed container={name} pod={pod.description}",
            f"Back-off restarting failed container {name} in pod {pod.description}",
        )

    def collect(self, now: float) -> None:
        """Drop delays that no longer count."""
        self._backoff.collect(now)
        self._ahead = {key: each for key, each in self._ahead.items() if each[0] > now >= each[1]}

    def _ended(self, key: str, finished_at: float, now: float) -> float:
        if finished_at <= now:
            return finished_at
        known, seen = self._ahead.get(key, (finished_at, now))
        seen = min(seen, now) if known == finished_at else now
        self._ahead.pop(key, None)
        self._ahead[key] = finished_at, seen
        if len(self._ahead) > MAX_AHEAD:
            del self._ahead[next(iter(self._ahead))]
        return seen


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


def last_finished_at(status: PodRuntimeStatus, name: str) -> float | None:
    """Unix seconds at which the newest exited record of a container ended; None without one."""
    for record in status.containers:
        if _has_ended(record, name):
            return record.finished_at / 1e9
    return None


def resumed_delay(
    newest: ContainerStatus, earlier: ContainerStatus | None, maximum: float
) -> BackoffState | None:
    """The delay in effect after the end of a container that an earlier agent started.

    The restart count bounds it: each restart doubled the delay, unless it began anew in between.
    That shows where the record before is still there: what the container waited for its restart was
    at least the delay of that time. None: it was never restarted.
    """
    if newest.restart_count < 1:
        return None
    base = min(BASE_SECONDS, maximum)
    doublings = newest.restart_count - 1
    if earlier is not None and earlier.finished_at and newest.created_at >= earlier.finished_at:
        waited = (newest.created_at - earlier.finished_at) / 1e9
        steps = 0 if waited < base else int(math.log2(waited / base)) + 1
        doublings = min(doublings, steps)
    delay = min(base * 2 ** min(doublings, MOST_DOUBLINGS), maximum)
    return BackoffState(delay, newest.created_at / 1e9)


def _has_ended(record: ContainerStatus, name: str) -> bool:
    return record.name == name and record.state is ContainerState.EXITED
