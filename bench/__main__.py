"""``python -m bench``: measure, print a table, and save the figures if requested."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from bench.measure import FULL, QUICK, Bench
from bench.results import Results, table
from bench.stand import make_stand


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the agent on a private containerd, beside raw CRI calls.",
    )
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2, help="2: with events")
    parser.add_argument("--quick", action="store_true", help="about a minute, few samples")
    parser.add_argument(
        "--agent", type=Path, metavar="PROGRAM", help="measure a Go kubelet (or its like) instead"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    begun = time.monotonic()
    try:
        results = asyncio.run(run(given.containerd, quick=given.quick, program=given.agent))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(table(results))
    print(f"{time.monotonic() - begun:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(results.as_json(), indent=2) + "\n")
    return 0


async def run(generation: int, *, quick: bool, program: Path | None = None) -> Results:
    """One run; everything it started is gone afterwards, even if it is interrupted."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with make_stand(generation, program=program) as stand:
        bench = Bench(stand, QUICK if quick else FULL, generation)
        await bench.run()
        return bench.results


if __name__ == "__main__":
    raise SystemExit(main())
