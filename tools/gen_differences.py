"""Write docs/differences.md from docs/reference/differences.csv.

python tools/gen_differences.py            # writes the page
python tools/gen_differences.py --check    # exits 1 if the page is not what the list gives
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.rulebook import differences  # noqa: E402

OUT = ROOT / "docs" / "differences.md"
HEADER = """# Differences from the kubelet

The [fact tables](reference/README.md) describe the kubelet. This page lists where kubeletpy differs
on purpose; the tests that compare code and tables allow nothing else. Column `why` of
[differences.csv](reference/differences.csv), from which `tools/gen_differences.py` makes the page,
has the reason of each row.
"""


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def render() -> str:
    """The page."""
    parts = [HEADER]
    for table, rows in groupby(differences.listed(), lambda each: each.table):
        parts.append(f"\n## [{table}](reference/{table})\n\n| row | here |\n| --- | --- |\n")
        alike: dict[str, list[str]] = {}
        for each in rows:
            alike.setdefault(each.here, []).append(f"`{cell(each.row)}`")
        for here, names in alike.items():
            parts.append(f"| {', '.join(names)} | {cell(here)} |\n")
    return "".join(parts)


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = render()
    if parser.parse_args().check:
        stale = not OUT.exists() or OUT.read_text() != text
        if stale:
            print("out of date: docs/differences.md; run tools/gen_differences.py", file=sys.stderr)
        return 1 if stale else 0
    OUT.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
