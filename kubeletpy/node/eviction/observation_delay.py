"""When to observe a node next: the nearer a threshold, the sooner. Pure.

The kubelet observes every 10 s (docs/reference/constants.csv: monitor period), which is too seldom
for a pod that uses up a gigabyte a second, and more than a quiet node needs. How soon a threshold
can be reached is estimated from what can be used up in a second, or from what was just used up if
that is more.
"""

from __future__ import annotations

from kubeletpy.node.eviction.signals import INODES, MEMORY, Observations, Signal, SignalObservation
from kubeletpy.node.eviction.thresholds import Rules

PERIOD_S = 10.0
LEAST_S = 0.1
"""An observation takes about half a millisecond of processor time (0.46 ms were measured)."""
CONFIRM_S = 0.05
"""Between an observation that finds a threshold crossed and the one that confirms it."""
BYTES_A_SECOND = 1 << 30
DISK_BYTES_A_SECOND = 512 << 20
INODES_A_SECOND = 100_000
TASKS_A_SECOND = 10_000
GROWTH = 2
"""Consumption may become this many times faster until the next observation."""


def observation_delay(seen: Observations, before: Observations, rules: Rules) -> float:
    """Seconds until the next observation, from LEAST_S to PERIOD_S.

    Args:
        seen: by this observation.
        before: by the previous one.
        rules: the node's.
    """
    wait = PERIOD_S
    for threshold in rules.thresholds:
        now = seen.get(threshold.signal)
        if now is None:
            continue
        left = now.available - threshold.amount.in_units(now.capacity)
        if left < 0:  # it is acted on, or its grace period runs: nothing can be missed
            wait = min(wait, threshold.grace or PERIOD_S)
            continue
        wait = min(wait, left / _rate(threshold.signal, now, before.get(threshold.signal)))
    return max(LEAST_S, wait)


def _usual(signal: Signal) -> float:
    if signal in MEMORY:
        return BYTES_A_SECOND
    if signal is Signal.PIDS:
        return TASKS_A_SECOND
    return INODES_A_SECOND if signal in INODES else DISK_BYTES_A_SECOND


def _rate(signal: Signal, now: SignalObservation, before: SignalObservation | None) -> float:
    """How much may be used up per second until the next observation."""
    usual = _usual(signal)
    if before is None or now.at <= before.at:
        return usual
    used_up = (before.available - now.available) / (now.at - before.at)
    return max(usual, GROWTH * used_up)
