"""Copy the tables that the embedded API reads at run time into the package.

    python tools/gen_local_data.py            # copies
    python tools/gen_local_data.py --check    # exits 1 if a copy is not the table

The wheel has no docs; this is all that it needs of them.
"""

from __future__ import annotations

import argparse
import filecmp
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


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        _, stale, missing = filecmp.cmpfiles(REFERENCE, DATA, FILES, shallow=False)
        if stale or missing:
            named = ", ".join([*stale, *missing])
            print(f"out of date: {named}; run tools/gen_local_data.py", file=sys.stderr)
            return 1
        return 0
    for name in FILES:
        shutil.copyfile(REFERENCE / name, DATA / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
