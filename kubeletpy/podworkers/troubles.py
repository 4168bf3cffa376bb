"""Since when a pod's syncs fail: the first failure of a row that still goes on. Pure.

Bounded. Must never decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_PODS = 500
OVER_S = 600.0
"""Seconds without a failure after which a row of failures is over: twice the longest backoff, as
for the backoffs themselves.

Source: docs/reference/behaviour.md, d."""


class Troubles:
    """Pod uid -> first and last failure, in Unix seconds; those whose last is oldest go first."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, float]] = {}

    def failed(self, uid: str, now: float) -> None:
        """A sync has failed, or was held back by a backoff."""
        first, last = self._rows.pop(uid, (now, now))
        self._rows[uid] = (first if 0 <= now - last <= OVER_S else now, now)
        while len(self._rows) > MAX_PODS:
            del self._rows[next(iter(self._rows))]

    def since(self, uid: str, now: float) -> float | None:
        """The first failure of the row; None: the latest is long ago, or there was none."""
        first, last = self._rows.get(uid, (now, float("-inf")))
        return first if now - last <= OVER_S else None

    def gone(self, uid: str) -> None:
        """The pod is gone."""
        self._rows.pop(uid, None)

    def as_json(self) -> dict[str, list[float]]:
        """To be kept over a restart of the agent."""
        return {uid: list(row) for uid, row in self._rows.items()}

    def take(self, kept: Mapping[str, Any]) -> None:
        """What an earlier agent noted; what this one has noted since counts more."""
        rows: dict[str, tuple[float, float]] = {}
        for uid, row in kept.items():
            match row:
                case [int() | float() as first, int() | float() as last]:
                    rows[uid] = (float(first), float(last))
                case _:
                    continue
        for uid, (first, last) in self._rows.items():
            before = rows.pop(uid, (first, first))
            rows[uid] = (before[0] if first - before[1] <= OVER_S else first, last)
        self._rows = dict(list(rows.items())[-MAX_PODS:])
