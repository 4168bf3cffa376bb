"""``python -m tools.lab.prepare check``: whether virtual nodes can boot here; ``build``: an image.

``check`` prints the reason, and exits with code 3, where user-mode Linux does not start.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.env.process import CommandError
from tools.lab.image import build, default_recipe
from tools.lab.recipe import NEWEST_STABLE, SUITES

PROGRAM = "linux.uml"
MEMORY = Path("/dev/shm")
"""Directory of the files that are the memory of nodes."""
NEEDED_MIB = 5120
"""Two nodes at once, and what else uses it."""
WITHIN_S = 60.0
"""A kernel without a disk needs one second to find that out."""
_STARTED = re.compile(r"^Linux version ", re.MULTILINE)


def obstacle(output: str, free_mib: int) -> str | None:
    """Why nodes cannot boot here; None: they can.

    ``output``: of a kernel without a disk; ``free_mib``: free space in `MEMORY`.
    """
    if not _STARTED.search(output):
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return f"user-mode Linux does not start here: {lines[-1] if lines else 'it writes nothing'}"
    if free_mib < NEEDED_MIB:
        return f"virtual nodes need {NEEDED_MIB} MiB in {MEMORY}, which has {free_mib} MiB"
    return None


def _first_lines() -> str:
    """Output of a kernel without a disk, which ends by itself; or an error."""
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not installed"
    with tempfile.TemporaryDirectory(prefix="lab-") as directory:
        options = ("mem=64M", "con=null", "con0=null,fd:1", "panic=1", "root=/dev/none")
        try:
            output = subprocess.run(
                [PROGRAM, *options, f"uml_dir={directory}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=WITHIN_S,
                check=False,  # without a disk it ends with an abort
            ).stdout
        except subprocess.TimeoutExpired as error:
            output = error.output or b""
    return output.decode(errors="replace")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.lab.prepare", description=__doc__)
    parser.add_argument("command", choices=("check", "build"))
    parser.add_argument("--suite", choices=SUITES, default=NEWEST_STABLE)
    supplied = parser.parse_args()
    if supplied.command == "check":
        why = obstacle(_first_lines(), shutil.disk_usage(MEMORY).free >> 20)
        if why is not None:
            print(why)
        return 3 if why is not None else 0
    try:
        print(build(default_recipe(supplied.suite)))
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
