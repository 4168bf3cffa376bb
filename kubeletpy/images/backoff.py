"""When an image whose pull failed may be pulled again, and why it failed. Pure.

10 s doubling to 5 min, per pod and image, counted from the last failure; it is forgotten after ten
minutes without a failure (docs/reference/behaviour.md, d). Must never read a clock: times are
arguments, in seconds of one monotonic clock.
"""

from __future__ import annotations

from kubeletpy.pods.backoff import ExponentialBackoff

BASE = 10.0
MAXIMUM = 300.0
FORGET_AFTER = 2 * MAXIMUM


class PullBackoff:
    """Failures by key (pod and image)."""

    def __init__(self) -> None:
        self._backoff = ExponentialBackoff(BASE, MAXIMUM, FORGET_AFTER)
        self._causes: dict[str, str] = {}

    def blocked_until(self, key: str, now: float) -> tuple[float, str] | None:
        """End of the backoff and the last failure's text; None: pull now."""
        state = self._backoff.state(key, now)
        if state is None or now >= state.raised_at + state.delay:
            return None
        return state.raised_at + state.delay, self._causes.get(key, "")

    def failed(self, key: str, now: float, cause: str) -> float:
        """Record a failure; returns when the next pull may start."""
        self._causes[key] = cause
        due = now + self._backoff.next(key, now, now)
        if len(self._causes) > len(self._backoff):
            self.forget_expired(now)
        return due

    def forget_expired(self, now: float) -> None:
        """Drop what has not failed for ten minutes; called after a successful pull."""
        self._backoff.collect(now)
        self._causes = {
            key: cause for key, cause in self._causes.items() if self._backoff.state(key, now)
        }
