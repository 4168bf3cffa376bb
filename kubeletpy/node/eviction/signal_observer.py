"""Observes a node, and keeps the plausible observations of the last seconds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

from kubeletpy.node.eviction.observation_delay import PERIOD_S
from kubeletpy.node.eviction.protocol import NodeSignals
from kubeletpy.node.eviction.ranking import LAYERS_S
from kubeletpy.node.eviction.settling import Awaited, begun, is_settled, observed
from kubeletpy.node.eviction.signals import (
    MEMORY,
    CheckedObservations,
    Doubt,
    Observations,
    Signal,
    SignalObservation,
    believable,
)
from kubeletpy.node.eviction.thresholds import Rules

log = logging.getLogger(__name__)

LOOKS = 32
"""How many observations are kept: more than fit into LAYERS_S and a period, at one a second."""
SETTLE_LOOK_S = 0.2
"""Between two checks whether what is to be freed has been."""


class SignalObserver:
    """Observes the signals of a node and keeps recent observations."""

    def __init__(self, signals: NodeSignals, rules: Rules) -> None:
        self._signals = signals
        self._rules = rules
        self.doubts: Mapping[Signal, Doubt] = {}
        """Those of the last observation."""
        self._left: deque[tuple[float, Observations]] = deque(maxlen=LOOKS)
        """Observations of the last seconds, at most one a second."""

    async def observe(self) -> CheckedObservations:
        """Observe what is available now."""
        found = await self._signals.observe(self._rules.signals)
        now = asyncio.get_running_loop().time()
        seen = believable(found, now)
        if seen.doubts and seen.doubts != self.doubts:
            why = {signal.value: doubt.value for signal, doubt in seen.doubts.items()}
            log.warning("implausible measurements of the node are ignored", extra={"why": why})
        self.doubts = seen.doubts
        if not self._left or now - self._left[-1][0] >= 1:
            self._left.append((now, seen.observations))
        return seen

    async def left(self, signal: Signal) -> SignalObservation | None:
        """Observe what is available for one signal now."""
        return (await self.observe()).observations.get(signal)

    def most_left(self, signal: Signal) -> int:
        """The most that was available since the layers may have been counted."""
        since = asyncio.get_running_loop().time() - LAYERS_S - PERIOD_S
        seen = (found for at, found in self._left if at >= since)
        return max((found[signal].available for found in seen if signal in found), default=0)

    def arm(self, seen: Observations) -> None:
        """Be woken when a memory threshold is reached."""
        margins: dict[Signal, int] = {}
        for threshold in self._rules.thresholds:
            at = seen.get(threshold.signal)
            if threshold.signal in MEMORY and at is not None:
                left = at.available - threshold.amount.in_units(at.capacity)
                if left > 0:
                    margins[threshold.signal] = min(left, margins.get(threshold.signal, left))
        self._signals.arm(margins)

    async def settled(self, awaited: Awaited, before: SignalObservation | None) -> None:
        """Wait until what is to be freed has been, or is no longer worth waiting for.

        ``before``: what was available before any of it could be freed.
        """
        loop = asyncio.get_running_loop()
        settling = None if before is None else begun(awaited, before, loop.time())
        while True:
            seen = await self.left(awaited.signal)
            if seen is not None:
                now = loop.time()
                settling = observed(settling or begun(awaited, seen, now), seen, now)
                if is_settled(settling, seen.capacity, now):
                    return
            await asyncio.sleep(SETTLE_LOOK_S)
