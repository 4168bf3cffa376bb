"""When an image whose pull failed may be pulled again.

10 s doubling to 5 min, per pod and image, counted from the last failure; ten minutes without a
failure forget it (docs/reference, backoff). Must never read a clock: times are Unix seconds and
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = 10.0
MAXIMUM = 300.0
FORGET_AFTER = 2 * MAXIMUM
MAX_ENTRIES = 10_000
"""More failing images than any node has; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class _Entry:
    failed_at: float
    delay: float
    cause: str


class PullBackoff:
    """Failures by key (pod and image)."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def blocked_until(self, key: str, now: float) -> tuple[float, str] | None:
        """End of the backoff in Unix seconds and the last failure's text; None: pull now."""
        entry = self._entries.get(key)
        if entry is None or now >= entry.failed_at + entry.delay:
            return None
        return entry.failed_at + entry.delay, entry.cause

    def failed(self, key: str, now: float, cause: str) -> float:
        """Note a failure; the Unix time in seconds at which the next pull may start."""
        entry = self._entries.pop(key, None)
        if entry is None or now - entry.failed_at > FORGET_AFTER:
            delay = BASE
        else:
            delay = min(entry.delay * 2, MAXIMUM)
        self._entries[key] = _Entry(now, delay, cause)
        while len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return now + delay

    def forget_expired(self, now: float) -> None:
        """Drop what has not failed for ten minutes; called after a successful pull."""
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if now - entry.failed_at <= FORGET_AFTER
        }
