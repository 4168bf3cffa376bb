"""The current cpu usage rate, from the usage at two times.

The window is the time between two requests, at least WINDOW_MIN_NS and, with frequent requests, up
to twice WINDOW_NS. Nothing is sampled without a request: the window of a container that has just
started begins at its start, and for others the request waits for a second sample (:meth:`lacks`).
Pure: time comes with the samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.structs import Struct

WINDOW_MIN_NS = 500_000_000
WINDOW_NS = 10_000_000_000
FRESH_NS = 60_000_000_000
"""The longest window since a start: the average of a longer time is not the current usage."""
FORGET_NS = 600_000_000_000
"""Ten minutes: older samples do not show current usage.

Source: docs/reference/constants.csv: cpu usage cache.
"""


class _Window(Struct, frozen=True):
    begun_at: int
    begun_ns: int
    last_at: int
    last_ns: int
    rate: int | None = None


class Rates:
    """Remembers samples by key."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def nano_cores(self, key: str, at: int, used_ns: int, since: int = 0) -> int | None:
        """The rate as of a new sample, in billionths of a core; None when there is no earlier one.

        Args:
            key: whose cpu time it is.
            at: when it was read, Unix nanoseconds.
            used_ns: cpu time since its start.
            since: when the cpu time was 0, Unix nanoseconds; 0: not known.
        """
        old = self._windows.get(key)
        if old is None and since > 0 and 0 < at - since < FRESH_NS:
            old = self._windows[key] = _Window(since, 0, since, 0)
        if old is None or used_ns < old.last_ns or not 0 <= at - old.last_at < FORGET_NS:
            self._windows[key] = _Window(at, used_ns, at, used_ns)
            return None
        window = at - old.begun_at
        if window < WINDOW_MIN_NS:
            return old.rate
        rate = (used_ns - old.begun_ns) * 1_000_000_000 // window
        begun_at, begun_ns = old.begun_at, old.begun_ns
        if window >= WINDOW_NS:
            # the next window begins at the last sample of this one, so it is never empty
            begun_at, begun_ns = old.last_at, old.last_ns
            if at - begun_at >= WINDOW_NS:
                begun_at, begun_ns = at, used_ns
        self._windows[key] = _Window(begun_at, begun_ns, at, used_ns, rate)
        return rate

    def lacks(self, keys: Iterable[str], now: int) -> bool:
        """Whether one of these has no rate, but will have one after WINDOW_MIN_NS."""
        return any(
            each is not None and each.rate is None and each.begun_at > now - WINDOW_MIN_NS
            for each in map(self._windows.get, keys)
        )

    def forget_others(self, keys: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(keys)
        self._windows = {key: each for key, each in self._windows.items() if key in kept}
