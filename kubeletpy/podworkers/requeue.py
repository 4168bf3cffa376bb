"""How a worker's waits and grace periods are computed.

Pure. Sources: docs/reference/behaviour.md, b4, b6.
"""

from __future__ import annotations

import zlib

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import SyncOutcome

MIN_GRACE = 1
"""Seconds: every pod gets at least this."""

SHORTEST_WAIT = 0.001
AFTER_DUE = 0.1
"""Seconds until the next try when the time to retry had passed before the sync ended: a sync that
keeps requesting a time in the past must not spin."""

TICK_S = 2.0
"""Approximate seconds between the ticks of an agent. A core that wakes up for each pod alone finds
its caches cold (500 idle pods: 1.7 % of a core alone, 1.3 % together)."""


class RequeueSettings(Struct, frozen=True):
    """Seconds between syncs; all but the end of a backoff are stretched by a jitter of 1..1.5."""

    sync_frequency: float = 60.0
    error_backoff: float = 10.0
    network_backoff: float = 1.0
    tick: float = 0.0
    """Pods with nothing due are synced together, at multiples of this; 0: each by itself."""


def tick_of(node_name: str) -> float:
    """Seconds between the ticks of a node: a tenth more or less than TICK_S, by its name.

    Nodes whose clocks agree would otherwise send the API the reads of their syncs all at once.
    """
    return TICK_S * (0.9 + 0.2 * zlib.crc32(node_name.encode()) / 0xFFFFFFFF)


def effective_grace(current: int | None, pod: Pod, override: int | None) -> int:
    """Seconds a pod gets to end: the least that was requested, but at least MIN_GRACE.

    The spec counts only when nothing else was requested.
    """
    asked = [g for g in (current, pod.deletion_grace_period, override) if g is not None]
    return max(min(asked, default=pod.termination_grace_period), MIN_GRACE)


def requeue_delay(
    outcome: SyncOutcome | None, now: float, jitter: float, settings: RequeueSettings
) -> float:
    """Seconds until the next sync if nothing happens first."""
    delay = _without_deadline(outcome, now, jitter, settings)
    if outcome is None or outcome.deadline is None:
        return delay
    left = outcome.deadline - now
    return min(delay, max(left, SHORTEST_WAIT) if left > 0 else AFTER_DUE)


def _without_deadline(
    outcome: SyncOutcome | None, now: float, jitter: float, settings: RequeueSettings
) -> float:
    stretch = 1.0 + jitter
    backoff = min(settings.error_backoff, settings.sync_frequency) * stretch
    if outcome is None:
        return backoff
    if outcome.network_not_ready:
        return settings.network_backoff * stretch
    resync = _resync(settings, stretch, now)
    if outcome.retry_at is not None:
        # exactly then: a restart after a backoff has waited long enough already
        left = outcome.retry_at - now
        due = min(max(left, SHORTEST_WAIT) if left > 0 else AFTER_DUE, resync)
        if outcome.error and not outcome.waiting:
            # something else failed as well, which has no due time of its own
            return min(due, backoff)
        return due
    return backoff if outcome.error else resync


def _resync(settings: RequeueSettings, stretch: float, now: float) -> float:
    """On the last tick of the stretched time, which is 1..1.5 times the frequency anyway."""
    frequency = settings.sync_frequency
    tick = min(settings.tick, frequency / 2)
    if not tick:
        return frequency * stretch
    delay = (now + frequency * stretch) // tick * tick - now
    return delay if delay >= frequency else delay + tick
