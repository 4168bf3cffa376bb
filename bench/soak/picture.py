"""``python -m bench.soak.picture RUN.csv … > soak.svg``: the curves of soaks, one colour each."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.plots import Line, Panel, svg

_MINUTE = 60.0
_PANELS: dict[str, tuple[str, Callable[[float], float]]] = {
    "rss": ("resident memory, MB", lambda value: value / (1 << 20)),
    "files": ("open descriptors", float),
    "threads": ("threads", float),
    "pods": ("pods in the API", float),
    "ready": ("creation to Ready, s (median of each interval)", float),
    "gone": ("deletion to removal, s (median of each interval, with grace periods)", float),
}


def picture(runs: Mapping[str, list[dict[str, str]]]) -> str:
    """An SVG of the rows of some runs, by the runs' names."""
    panels = [
        Panel(title, [_line(name, rows, key, scale) for name, rows in runs.items()])
        for key, (title, scale) in _PANELS.items()
    ]
    return svg(panels, "minutes")


def _line(name: str, rows: list[dict[str, str]], key: str, scale: Callable[[float], float]) -> Line:
    points = [
        (float(row["seconds"]) / _MINUTE, scale(float(row[key])) if row[key] else None)
        for row in rows
    ]
    return Line(name, points)


def main() -> None:
    """Entry point."""
    runs = {}
    for name in sys.argv[1:]:
        with Path(name).open(newline="") as opened:
            runs[Path(name).stem] = list(csv.DictReader(opened))
    sys.stdout.write(picture(runs))


if __name__ == "__main__":
    main()
