"""Copy the tables that the programs read at run time into their packages.

    python tools/gen_local_data.py            # copies
    python tools/gen_local_data.py --check    # exits 1 if a copy is not the table

The wheels have no docs; this is all that they need of them: the embedded API's tables, and of
api-wire.json what a Pod consists of, for the pods API.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
DATA = ROOT / "up" / "kubeletpy_up" / "data"
FILES = (
    "api-resources.json",
    "api-schema.json",
    "api-schema-more.json",
    "api-wire.json",
    "openapi-v2-document.json",
)
WIRE = "api-wire.json"
POD_WIRE = ROOT / "kubeletpy" / "pods_api" / "pod-wire.json"


def of_pods() -> str:
    """The messages of api-wire.json that a Pod consists of, one a line."""
    table: dict[str, dict[str, list[str]]] = json.loads((REFERENCE / WIRE).read_text())
    found: dict[str, dict[str, list[str]]] = {}
    left = ["core/Pod"]
    while left:
        name = left.pop()
        if name in table and name not in found:
            found[name] = table[name]
            kinds = (kind for _, kind in table[name].values())
            left += [k.lstrip("*^").removeprefix("[]").removeprefix("map ") for k in kinds]
    lines = (
        f"{json.dumps(name)}:{json.dumps(found[name], separators=(',', ':'))}"
        for name in sorted(found)
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        _, stale, missing = filecmp.cmpfiles(REFERENCE, DATA, FILES, shallow=False)
        if not POD_WIRE.exists() or POD_WIRE.read_text() != of_pods():
            stale.append(POD_WIRE.name)
        if stale or missing:
            named = ", ".join([*stale, *missing])
            print(f"out of date: {named}; run tools/gen_local_data.py", file=sys.stderr)
            return 1
        return 0
    for name in FILES:
        shutil.copyfile(REFERENCE / name, DATA / name)
    POD_WIRE.write_text(of_pods())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
