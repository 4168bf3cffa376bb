"""Thresholds of settings, and looks that find what a test says."""

from __future__ import annotations

from typing import Any

from kubeletpy.config.load import default_settings
from kubeletpy.eviction.decide import EvictionDecision, EvictionState, decide
from kubeletpy.eviction.signals import Signal, SignalObservation
from kubeletpy.eviction.thresholds import Rules, from_settings

GI = 1 << 30
MI = 1 << 20


def rules(**document: Any) -> Rules:
    """Of a configuration."""
    return from_settings(default_settings(**document))


class Looks:
    """One look after another, as a keeper makes them."""

    def __init__(self, of: Rules) -> None:
        self.rules = of
        self.state = EvictionState()
        self.now = 1000.0

    def look(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """What comes of a look that finds so much of 10 Gi of memory (or of each signal)."""
        self.now += after
        seen = {
            Signal[name]: SignalObservation(amount, 10 * GI, self.now)
            for name, amount in available.items()
        }
        decision = decide(seen, self.rules, self.state, self.now, at_once=0)
        self.state = decision.state
        return decision

    def sure(self, after: float = 10.0, **available: int) -> EvictionDecision:
        """Two looks that find the same."""
        self.look(after, **available)
        return self.look(0.05, **available)
