"""Exponential backoff by key: how long to wait before trying the same thing again.

Time is an argument (seconds of any monotonic clock, the same for all calls). Bounded: beyond its
capacity the entry that was raised longest ago is dropped. Must never wait or read a clock.

Source: docs/reference/behaviour.md, d.
"""

from __future__ import annotations

from kubeletpy.base.structs import Component, Struct


class BackoffState(Struct, frozen=True):
    """The current delay of one key."""

    delay: float
    """Seconds."""
    raised_at: float
    """When the delay was last set or raised."""


class ExponentialBackoff(Component):
    """Delays that double from ``base`` to ``maximum`` and start over after a quiet period.

    All in seconds; a ``base`` above ``maximum`` is lowered to it.
    """

    base: float
    maximum: float
    quiet: float
    """How long after its last raise an entry expires."""
    capacity: int = 8192

    def __post_init__(self) -> None:
        self.base = min(self.base, self.maximum)
        self._entries: dict[str, BackoffState] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def state(self, key: str, event_at: float) -> BackoffState | None:
        """The key's state as of an event at that time; None when it has expired."""
        entry = self._entries.get(key)
        if entry is None or event_at - entry.raised_at > self.quiet:
            return None
        return entry

    def due_at(self, key: str, event_at: float, now: float) -> float | None:
        """When the delay that began with the event ends, if that is in the future."""
        entry = self.state(key, event_at)
        if entry is None or now - event_at >= entry.delay:
            return None
        return event_at + entry.delay

    def next(self, key: str, event_at: float, now: float) -> float:
        """Set or double the key's delay; returns the new delay in seconds."""
        entry = self.state(key, event_at)
        delay = self.base if entry is None else min(entry.delay * 2, self.maximum)
        self._entries.pop(key, None)  # raised again: it is the newest now
        self._entries[key] = BackoffState(delay, now)
        while len(self._entries) > self.capacity:
            self._entries.pop(next(iter(self._entries)))
        return delay

    def resume(self, key: str, state: BackoffState) -> None:
        """Go on from a delay that another process set; a delay that is known already wins."""
        if key not in self._entries and len(self._entries) < self.capacity:
            self._entries[key] = state

    def collect(self, now: float) -> None:
        """Drop the entries whose quiet period is over."""
        removed = [k for k, entry in self._entries.items() if now - entry.raised_at > self.quiet]
        for key in removed:
            del self._entries[key]
