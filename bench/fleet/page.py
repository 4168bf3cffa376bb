"""``python -m bench.fleet.page``: tables and plots of a run that ``bench.fleet`` has kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.fleet.tally import Phase, Row, by_kind, codes, per_second, rates
from bench.plots import COLOURS, Line, Panel, svg

GROUPS = {
    "leases": ("leases",),
    "nodes": ("nodes", "nodes/status"),
    "pods/status": ("pods/status",),
    "events": ("events",),
    "tokens": ("serviceaccounts/token",),
}
"""Writes and GETs by resource; LIST and WATCH have curves of their own, of all resources."""
LIST, WATCH, OTHERS, UNHEARD = "LIST", "WATCH", "others", "no answer"
KINDS = 8
"""Rows of the table of a phase."""


def group(verb: str, resource: str, code: int) -> str:
    """The curve that a request belongs to."""
    if code == 0:
        return UNHEARD
    if verb in ("list", "watch"):
        return verb.upper()
    return next((name for name, members in GROUPS.items() if resource in members), OTHERS)


def curves(rows: Iterable[Row], phase: Phase) -> dict[str, Sequence[int]]:
    """Requests of each second of a phase by group, most first; those without any are left out."""
    found: dict[str, list[Row]] = {name: [] for name in (*GROUPS, LIST, WATCH, OTHERS, UNHEARD)}
    for row in rows:
        if phase.start <= row[0] < phase.end:
            found[group(row[1], row[2], row[3])].append(row)
    seconds = {
        name: per_second(each, phase, arrived=name != UNHEARD)
        for name, each in found.items()
        if each
    }
    return dict(sorted(seconds.items(), key=lambda pair: -sum(pair[1])))


def picture(rows: Sequence[Row], phase: Phase) -> str:
    """A phase as SVG: all requests of each second, and those of the largest groups."""
    found = curves(rows, phase)
    title = "attempts without an answer, per second" if UNHEARD in found else "requests per second"
    whole = [sum(each) for each in zip(*found.values(), strict=True)]
    largest = [_line(name, found[name]) for name in list(found)[: len(COLOURS)]]
    panels = [Panel(title, [_line("all", whole)])]
    if len(largest) > 1:
        panels.append(Panel("of these", largest))
    return svg(panels, f"seconds since the beginning ({phase.name})")


def _line(name: str, values: Sequence[int]) -> Line:
    return Line(name, list(enumerate(values)))


def table(rows: Sequence[Row], phase: Phase) -> str:
    """Mean and peak of the kinds with the most requests, and of all."""
    whole = rates(per_second(rows, phase))
    lines = ["| requests per second | mean | peak | total |", "| --- | --- | --- | --- |"]
    for (verb, resource), found in list(by_kind(rows, phase).items())[:KINDS]:
        lines.append(
            f"| {resource} {verb.upper()} | {found.mean:.1f} | {found.peak} | {found.total} |"
        )
    lines.append(f"| all | {whole.mean:.1f} | {whole.peak} | {whole.total} |")
    return "\n".join(lines)


def main() -> None:
    """Write a plot for each phase, and print a table for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.page", description=__doc__)
    parser.add_argument("figures", type=Path, help="a file of python -m bench.fleet --json")
    parser.add_argument("--phases", nargs="+", help="show only these phases")
    parser.add_argument("--seconds", type=int, help="plot only the first seconds of each phase")
    parser.add_argument("--plots", type=Path, help="directory for the plots")
    requested = parser.parse_args()
    run = json.loads(requested.figures.read_text())
    rows: list[Row] = [(row[0], row[1], row[2], row[3], row[4]) for row in run["rows"]]
    nodes, pods = run["plan"]["nodes"], run["plan"]["pods"]
    for each in run["phases"]:
        phase = Phase(**each)
        if requested.phases and phase.name not in requested.phases:
            continue
        print(f"\n{phase.name}: {nodes} nodes, {pods} pods each, {phase.end - phase.start} s;")
        print(f"answers by code: {dict(sorted(codes(rows, phase).items()))}\n")
        print(table(rows, phase))
        if requested.plots is not None:
            end = min(phase.end, phase.start + (requested.seconds or phase.end))
            reported = Phase(phase.name, phase.start, end)
            (requested.plots / f"fleet-{phase.name}.svg").write_text(picture(rows, reported))
    print()
    for name, value in run["facts"].items():
        print(f"{name}: {value:g}")


if __name__ == "__main__":
    main()
