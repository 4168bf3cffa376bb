"""Thresholds from settings, and rounds with the observations that a test sets."""

from __future__ import annotations

from typing import Any

from kubeletpy.config.load import default_settings
from kubeletpy.node.eviction.decide import (
    EvictionDecision,
    EvictionState,
    Rules,
    Signal,
    SignalObservation,
    decide,
    from_settings,
)

GI = 1 << 30
MI = 1 << 20


def rules(**document: Any) -> Rules:
    """Rules from a configuration."""
    return from_settings(default_settings(**document))


class Rounds:
    """Consecutive rounds of observation, as a keeper makes them."""

    def __init__(self, of: Rules) -> None:
        self.rules = of
        self.state = EvictionState()
        self.now = 1000.0

    def observe(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """Decides on an observation with these amounts available, of 10 Gi for each signal."""
        self.now += after
        seen = {
            Signal[name]: SignalObservation(amount, 10 * GI, self.now)
            for name, amount in available.items()
        }
        decision = decide(seen, self.rules, self.state, self.now, at_once=0)
        self.state = decision.state
        return decision

    def confirm(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """Makes two rounds with the same observation."""
        self.observe(after, **available)
        return self.observe(0.05, **available)
