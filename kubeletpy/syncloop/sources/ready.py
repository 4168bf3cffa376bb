"""Which sources of pods there are, and whether all of them have spoken.

Until then it is not known which pods should run, and nothing may be ended or given away. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable


class ReadySources:
    """The configured sources by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._expected = frozenset(names)
        self._seen: set[str] = set()

    def has_spoken(self, name: str) -> None:
        """A source has delivered its full set."""
        self._seen.add(name)

    def all(self) -> bool:
        """Whether every source has delivered its full set."""
        return self._seen >= self._expected
