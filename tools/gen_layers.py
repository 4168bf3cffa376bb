"""Write docs/layers.svg: the packages from top to bottom, as the import contracts order them.

python tools/gen_layers.py            # writes the file
python tools/gen_layers.py --check    # exits 1 if the file is not what pyproject.toml gives

Each row is one layer of the first contract of import-linter: a package may import the packages of
lower rows, and no package of its own row.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "layers.svg"
WIDTH, ROW, BOX, GAP, MARGIN = 880, 44, 28, 8, 12
LETTER = 7.6
"""Width of a letter of the font, in pixels."""
PADDING = 9
STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1a1a1a;text-anchor:middle}"
    "rect{fill:#e8eefc;stroke:#5b73b8;rx:4px}.side{fill:#ececec;stroke:#888}"
    "path{stroke:#888;fill:none;marker-end:url(#tip)}"
)


def layers(pyproject: str) -> list[list[str]]:
    """The packages of each layer, from top to bottom, without the prefix of the project."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    rows = contracts[0]["layers"]
    return [[name.strip().removeprefix("kubeletpy.") for name in row.split("|")] for row in rows]


def lines(names: Sequence[str]) -> list[list[str]]:
    """The names of a layer, in as many lines as their boxes need."""
    found: list[list[str]] = [[]]
    for name in names:
        if found[-1] and _width([*found[-1], name]) > WIDTH - 2 * MARGIN:
            found.append([])
        found[-1].append(name)
    return found


def draw(rows: Sequence[Sequence[str]]) -> str:
    """The picture: a box for each package, and an arrow from each layer to the next."""
    shapes: list[str] = []
    top = MARGIN
    for number, names in enumerate(rows):
        if number:
            middle, before = WIDTH // 2, top - (ROW - BOX)
            shapes.append(f'<path d="M{middle} {before + 1}V{top - 3}"/>')
        for line in lines(names):
            left = (WIDTH - _width(line)) / 2
            for name in line:
                width = _box(name)
                kind = ' class="side"' if name == "kubeletpy_up" else ""
                shapes.append(
                    f'<rect{kind} x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BOX}"/>'
                    f'<text x="{left + width / 2:.1f}" y="{top + 18}">{escape(name)}</text>'
                )
                left += width + GAP
            top += BOX + GAP
        top += ROW - BOX - GAP
    height = top - (ROW - BOX) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Layers of packages, top to bottom">'
        f"<style>{STYLE}</style>"
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L6 3L0 6z" style="fill:#888;stroke:none"/>'
        "</marker></defs>"
        f'<rect width="{WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>'
    )
    return "\n".join([head, *shapes, "</svg>", ""])


def _box(name: str) -> float:
    return len(name) * LETTER + 2 * PADDING


def _width(names: Sequence[str]) -> float:
    return sum(map(_box, names)) + GAP * (len(names) - 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Draw the layers of packages.")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    supplied = parser.parse_args(arguments)
    picture = draw(layers((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    if not supplied.check:
        OUTPUT.write_text(picture, encoding="utf-8")
        return 0
    if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == picture:
        return 0
    print("out of date: docs/layers.svg; run tools/gen_layers.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
