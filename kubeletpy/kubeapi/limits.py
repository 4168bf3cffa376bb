"""Client-side rate limiting: a token bucket, and how long to wait after failures.

Decisions take the time as an argument; only :meth:`RateLimiter.wait` waits, on the loop's clock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import islice

import backoff


class RateLimiter:
    """``qps`` requests per second on average, ``burst`` at once; ``qps`` 0 is no limit.

    Source: docs/reference/config.csv: kubeAPIQPS, kubeAPIBurst, eventRecordQPS, eventBurst.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._interval = 1.0 / qps if qps > 0 else 0.0
        self._slack = max(burst - 1, 0) * self._interval
        self._next = float("-inf")

    def reserve(self, now: float) -> float:
        """Reserve the next token; returns the seconds to wait for it."""
        start = max(self._next, now - self._slack)
        self._next = start + self._interval
        return max(start - now, 0.0)

    async def wait(self) -> float | None:
        """Wait for a token; returns the seconds waited, None without a limit."""
        if not self._interval:
            return None
        delay = self.reserve(asyncio.get_running_loop().time())
        if delay:
            await asyncio.sleep(delay)
        return delay


class RepairPace:
    """When to write again what others remove from the API: the first time at once, then ever later.

    Another program may remove it each time. The wait between two repairs doubles, until they are
    four times as far apart as required.
    """

    def __init__(self, first: float, longest: float) -> None:
        """``first`` and ``longest``: seconds between two repairs."""
        self._first, self._longest = first, longest
        self._wait = first
        self._last = float("-inf")

    def due(self, now: float) -> bool:
        """Whether a repair may be made."""
        return now >= self._last + self._wait

    def repaired(self, now: float) -> None:
        """A repair is made now."""
        calm = now >= self._last + 4 * self._wait
        self._wait = self._first if calm else min(2 * self._wait, self._longest)
        self._last = now


def spread(wait: float, chance: float) -> float:
    """Seconds to wait when a server requested ``wait``: up to twice as long, never less.

    A busy server sends thousands of nodes the same number, and must not meet them all again at
    once.

    Args:
        chance: a random number from 0 to 1.
    """
    return wait * (1 + chance)


def jittered_waits(first: float, longest: float, rng: random.Random) -> Iterator[float]:
    """Seconds to wait after each failure in a row: doubling, with jitter up to twice as long.

    Args:
        first: seconds before jitter; ``longest`` is their bound, also before jitter.

    Source: docs/reference/constants.csv: reflector backoff.
    """
    for seconds in islice(backoff.expo(factor=first, max_value=longest), 1, None):
        yield seconds * rng.uniform(1.0, 2.0)
