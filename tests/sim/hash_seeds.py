"""Programs that print the same whatever PYTHONHASHSEED is: order must not come from hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def printed(program: str, seeds: Iterable[str], root: Path) -> set[str]:
    """The outputs of a program, run with each hash seed.

    Its argument is a new directory below ``root``.
    """
    found = set()
    for seed in seeds:
        place = root / seed
        place.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", program, str(place)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    return found
