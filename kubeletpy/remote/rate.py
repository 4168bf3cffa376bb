"""How many calls are answered per second. Pure: time is an argument."""

from __future__ import annotations


class Rate:
    """A rate limit: so many calls per second, and a burst."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at = float("-inf")

    def takes(self, now: float) -> bool:
        """Whether a call now is within the limit. ``now`` in seconds."""
        more = (now - self._at) * self._per_second
        self._left = min(self._burst, self._left + more)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
