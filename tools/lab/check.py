"""``python -m tools.lab.check``: whether virtual nodes can boot here under user-mode Linux.

Prints the reason and exits with code 3 where they cannot.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = "linux.uml"
WITHIN_S = 60.0
"""A kernel without a disk needs one second to find that out."""
_STARTED = re.compile(r"^Linux version ", re.MULTILINE)


def obstacle(output: str) -> str | None:
    """Why the kernel that wrote ``output`` did not start, from its last line; None: it did."""
    if _STARTED.search(output):
        return None
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"user-mode Linux does not start here: {lines[-1] if lines else 'it writes nothing'}"


def main() -> int:
    """Start a kernel that has no disk, which ends by itself."""
    if shutil.which(PROGRAM) is None:
        print(f"{PROGRAM} is not installed")
        return 3
    with tempfile.TemporaryDirectory(prefix="lab-") as directory:
        options = ("mem=64M", "con=null", "con0=null,fd:1", "panic=1", "root=/dev/none")
        try:
            done = subprocess.run(
                [PROGRAM, *options, f"uml_dir={directory}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=WITHIN_S,
                check=False,  # without a disk it ends with an abort
            )
            output = done.stdout
        except subprocess.TimeoutExpired as error:
            output = error.output or b""
    why = obstacle(output.decode(errors="replace"))
    if why is not None:
        print(why)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
