"""``kubeletpy record``: saves what the flight recorder of this machine's agent has on disk.

Works without a running agent, also after a crash. Read-only but for the file that it writes.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.cli.agent_socket import DEFAULTS

_MINUTE = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    parsed = parser().parse_args(arguments)
    from kubeletpy.observe.recorder.files import DIRECTORY, read_lines, recordings, since

    roots = [parsed.root_dir] if parsed.root_dir else [path.parent for path in DEFAULTS]
    try:
        found = [each for each in (recordings(root / DIRECTORY) for root in roots) if each]
        if not found:
            places = " or ".join(str(root / DIRECTORY) for root in roots)
            print(
                f"kubeletpy record: nothing is recorded in {places}; run this as root, and give "
                "the agent's --root-dir if it has another one",
                file=sys.stderr,
            )
            return 1
        output = parsed.output or Path(time.strftime("kubeletpy-%Y%m%d-%H%M%S.jsonl.gz"))
        files = since(found[0], time.time() - parsed.minutes * _MINUTE)
        with gzip.open(output, "xb") as saved:
            output.chmod(0o600)
            for line in read_lines(files):
                saved.write(line)
    except OSError as error:
        print(f"kubeletpy record: {error}", file=sys.stderr)
        return 1
    print(f"{output}: {output.stat().st_size} bytes; kubeletpy replay {output} shows what is in it")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy record",
        description="Save what the flight recorder of this machine's agent has on disk to one "
        "file: the events of pods, what was decided and from what, calls with their durations. "
        "Values of variables are hashed. The agent need not run.",
    )
    made.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new file")
    made.add_argument(
        "--minutes",
        type=float,
        default=10.0,
        help="minimum number of minutes to include (default 10)",
    )
    made.add_argument("--root-dir", type=Path, help="the agent's root directory")
    return made
