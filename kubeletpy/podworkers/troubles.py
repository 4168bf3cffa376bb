"""Since when a pod's syncs fail, and when the agent began to end it or refused it. Pure.

Kept over restarts of the agent. Bounded. Must never decide anything.
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
    """Pod uid -> first and last failure, in Unix seconds; those whose last is oldest go first.

    Besides, pod uid -> the end of the pod: when it was first refused or its end first requested.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, float]] = {}
        self._ends: dict[str, float] = {}

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

    def ends(self, uid: str, at: float) -> None:
        """The pod was refused, or its end requested, at ``at``; only the first time counts."""
        self._ends.setdefault(uid, at)
        while len(self._ends) > MAX_PODS:
            del self._ends[next(iter(self._ends))]

    def no_end(self, uid: str) -> None:
        """The pod is synced as one that should run, or no source has it any more."""
        self._ends.pop(uid, None)

    def ended_at(self, uid: str) -> float | None:
        """Unix seconds at which the pod was first refused or its end requested; None: unknown."""
        return self._ends.get(uid)

    def gone(self, uid: str) -> None:
        """The worker is done with the pod: it fails no more."""
        self._rows.pop(uid, None)

    def begun(self) -> dict[str, dict[str, float]]:
        """The parts of the notes whose change is news: the beginning of each row, and the ends."""
        return {"failing": {uid: row[0] for uid, row in self._rows.items()}, "ends": {**self._ends}}

    def as_json(self) -> dict[str, dict[str, Any]]:
        """To be kept over a restart of the agent; empty when there is nothing."""
        rows = {uid: list(row) for uid, row in self._rows.items()}
        return {k: v for k, v in (("failing", rows), ("ends", {**self._ends})) if v}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Add the notes of an earlier agent; newer notes of this agent win."""
        failing, ends = (_mapping(kept.get(each)) for each in ("failing", "ends"))
        earlier = {u: float(at) for u, at in ends.items() if isinstance(at, int | float)}
        self._ends = dict(list({**self._ends, **earlier}.items())[-MAX_PODS:])
        rows: dict[str, tuple[float, float]] = {}
        for uid, row in failing.items():
            match row:
                case [int() | float() as first, int() | float() as last]:
                    rows[uid] = (float(first), float(last))
        for uid, (first, last) in self._rows.items():
            before = rows.pop(uid, (first, first))
            rows[uid] = (before[0] if first - before[1] <= OVER_S else first, last)
        self._rows = dict(list(rows.items())[-MAX_PODS:])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
