"""``python -m bench``: measure, print a table, and save the figures if requested."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.command import add_arguments, run
from bench.measure import FULL, QUICK, TURN, Bench
from bench.results import Results
from bench.server import ApiServer
from bench.stand import make_stand


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the agent on a private containerd, beside raw CRI calls.",
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, few samples")
    add_arguments(parser)
    supplied = parser.parse_args()
    plan = QUICK if supplied.quick else TURN if supplied.beside else FULL

    async def measure(program: Path | None, server: ApiServer | None) -> Results:
        async with make_stand(supplied.containerd, program=program, server=server) as stand:
            bench = Bench(stand, plan, supplied.containerd)
            await bench.run()
            return bench.results

    return run(supplied, measure)


if __name__ == "__main__":
    raise SystemExit(main())
