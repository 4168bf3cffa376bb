"""CrashLoopBackOff: when a container that ended may start again.

Counts from the moment the container ended, not from when the agent saw it. Must never read a clock
or wait: the caller gets an instant to come back at.

Source: docs/reference/behaviour.md, d; KEP-4603.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kubeletpy.api import types as api
from kubeletpy.api.durations import format_duration
from kubeletpy.pods.backoff import ExponentialBackoff
from kubeletpy.pods.fnv import fnv1a_64
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus

BASE_SECONDS = 10.0
MAX_SECONDS = 300.0
QUIET_SECONDS = 600.0
"""Whatever the maximum: so long after its last raise a delay starts from the base again."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A start that must wait."""

    due_at: float
    """Unix seconds."""
    message: str
    """As kubectl shows it beside CrashLoopBackOff."""
    event: str
    """Text of the BackOff event."""


class CrashLoopBackoff:
    """The delays of all containers of the node."""

    def __init__(self, maximum: float = MAX_SECONDS) -> None:
        """``maximum`` in seconds (crashLoopBackOff.maxContainerRestartPeriod)."""
        self._backoff = ExponentialBackoff(BASE_SECONDS, maximum, QUIET_SECONDS)

    def __len__(self) -> int:
        return len(self._backoff)

    def check(self, key: str, finished_at: float, now: float) -> float | None:
        """When a container that ended at ``finished_at`` may start; None: now. Unix seconds.

        An end that lies in the future (a clock was set back) counts as now.
        """
        return self._backoff.due_at(key, min(finished_at, now), now)

    def next(self, key: str, finished_at: float, now: float) -> float:
        """A restart after that end is being made: raise the delay of the next one (seconds)."""
        return self._backoff.next(key, min(finished_at, now), now)

    def admit(
        self, pod: Pod, container: api.Container, status: PodRuntimeStatus, now: float
    ) -> HeldBack | None:
        """Whether a start must wait; if not, and the container has ended before, count it."""
        finished_at = last_finished_at(status, container["name"])
        if finished_at is None:
            return None
        key = crash_loop_key(pod, container)
        due = self.check(key, finished_at, now)
        if due is None:
            self.next(key, finished_at, now)
            return None
        name = container["name"]
        delay = format_duration(round(due - min(finished_at, now)))
        return HeldBack(
            due,
            f"back-off {delay} restarting failed container={name} pod={pod.description}",
            f"Back-off restarting failed container {name} in pod {pod.description}",
        )

    def collect(self, now: float) -> None:
        """Drop delays that count no more."""
        self._backoff.collect(now)


def crash_loop_key(pod: Pod, container: api.Container) -> str:
    """What a delay is kept under: a changed image or changed resources start afresh."""
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
        if record.name == name and record.state is ContainerState.EXITED:
            return record.finished_at / 1e9
    return None
