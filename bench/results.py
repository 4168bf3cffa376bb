"""Results of a bench as plain data, and their comparison to the aims. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of the agent, with the floor's if there is one.

    Attributes:
        aim: the largest acceptable ratio (``aim_on`` "ratio") or p50 ("value").
    """

    what: str
    pods: int
    unit: str
    agent: Sequence[float]
    floor: Sequence[float] = ()
    aim: float | None = None
    aim_on: str = "ratio"

    @property
    def ratio(self) -> float | None:
        """Median of the agent's over median of the floor's."""
        if not self.floor:
            return None
        return quantile(self.agent, 0.5) / quantile(self.floor, 0.5)

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None if there is none."""
        if self.aim is None:
            return None
        value = self.ratio if self.aim_on == "ratio" else quantile(self.agent, 0.5)
        return value is not None and value <= self.aim

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "what": self.what,
            "pods": self.pods,
            "unit": self.unit,
            "agent": _summary(self.agent),
            "floor": _summary(self.floor) if self.floor else None,
            "ratio": self.ratio,
            "aim": self.aim,
            "aim_on": self.aim_on if self.aim is not None else None,
            "met": self.met,
        }


@dataclass(slots=True)
class Results:
    """All rows of a run, and its parameters."""

    containerd: int
    rows: list[Row] = field(default_factory=list)
    calls_per_pod: dict[str, dict[str, float]] = field(default_factory=dict)
    """The agent's CRI calls and API requests by kind, for each step ("create 30")."""
    floor_parallel: int = 0
    failure: str | None = None
    """Why the run ended before its last step."""

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "containerd": self.containerd,
            "floor_parallel": self.floor_parallel,
            "failure": self.failure,
            "calls_per_pod": self.calls_per_pod,
            "rows": [row.as_json() for row in self.rows],
        }


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile by nearest rank; the median of an even number is the mean of two."""
    if share == 0.5:
        return statistics.median(values)
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95), "n": len(values)}


def table(results: Results) -> str:
    """The results in human-readable form."""
    head = ("", "pods", "floor p50", "p95", "agent p50", "p95", "unit", "ratio", "aim", "")
    lines = [head, *(_line(row) for row in results.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if column in (0, 6, 9) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    calls = [
        f"calls per pod, {step}: "
        + ", ".join(f"{kind} {count:.1f}" for kind, count in counts.items())
        for step, counts in results.calls_per_pod.items()
        if counts
    ]
    return "\n".join(
        [
            f"containerd {results.containerd}.x; the floor works on {results.floor_parallel} "
            "pods at once",
            *text,
            *calls,
        ]
    )


def _line(row: Row) -> tuple[str, ...]:
    floor = [quantile(row.floor, share) for share in (0.5, 0.95)] if row.floor else None
    agent = [quantile(row.agent, share) for share in (0.5, 0.95)]
    aim = "" if row.aim is None else f"{row.aim:g}{'x' if row.aim_on == 'ratio' else ''}"
    met = {None: "", True: "ok", False: "MISSED"}[row.met]
    return (
        row.what,
        str(row.pods) if row.pods else "",
        *([_number(value) for value in floor] if floor else ["", ""]),
        *(_number(value) for value in agent),
        row.unit,
        "" if row.ratio is None else f"{row.ratio:.2f}x",
        aim,
        met,
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
