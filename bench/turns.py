"""Results of two agents that took turns on the same machine, side by side. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from bench.results import Results, Row, quantile


def side_by_side(names: Sequence[str], turns: Sequence[Sequence[Results]]) -> str:
    """A table with a line for each row: both agents' medians of all turns, and the turns.

    A row with a floor shows ratios to the floor of the same turn, another row its values. An aim
    that does not apply to what the row shows is left out.

    Args:
        names: of the two agents.
        turns: the results of both in each turn.
    """
    first = turns[0][0].rows
    lines = [("", "pods", "", names[0], names[1], "aim", f"turns: {names[0]} | {names[1]}")]
    for row in first:
        both = [
            [_figure(_rows(result)[row.what, row.pods]) for result in pair]
            for pair in turns
            if all((row.what, row.pods) in _rows(result) for result in pair)
        ]
        if not both:
            continue
        reported = "ratio" if row.floor else "value"
        ours, theirs = ([pair[side] for pair in both] for side in (0, 1))
        lines.append(
            (
                row.what,
                str(row.pods or ""),
                "x floor" if row.floor else row.unit,
                _number(median(ours)),
                _number(median(theirs)),
                "" if row.aim is None or row.aim_on != reported else f"{row.aim:g}",
                f"{' '.join(map(_number, ours))} | {' '.join(map(_number, theirs))}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    for side, name in enumerate(names):
        for step, calls in _calls([pair[side] for pair in turns]).items():
            reported = ", ".join(f"{kind} {count:.1f}" for kind, count in sorted(calls.items()))
            text.append(f"{name}, calls per pod, {step}: {reported}")
    return "\n".join(text)


def _rows(results: Results) -> dict[tuple[str, int], Row]:
    return {(row.what, row.pods): row for row in results.rows}


def _figure(row: Row) -> float:
    return quantile(row.agent, 0.5) if row.ratio is None else row.ratio


def _calls(results: Sequence[Results]) -> dict[str, dict[str, float]]:
    """The mean number of calls per pod over all turns, by step and kind; rare ones are left out."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for result in results:
        for step, calls in result.calls_per_pod.items():
            for kind, count in calls.items():
                sums[step][kind] += count / len(results)
    return {
        step: {kind: count for kind, count in calls.items() if count >= 0.05}
        for step, calls in sums.items()
    }


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
