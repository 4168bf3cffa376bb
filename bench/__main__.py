"""``python -m bench``: measure, print a table, and save the figures if requested."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.command import add_arguments, run
from bench.measure import FULL, QUICK, TURN, Bench, many
from bench.results import Results
from bench.server import ApiServer
from bench.stand import make_stand

PREFIX = 22
"""Prefix length of the pod networks: 1,021 addresses."""
PATIENCE_S = 1200.0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the agent on a private containerd, beside raw CRI calls.",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="about a minute, few samples")
    sizes.add_argument(
        "--pods", type=int, nargs="+", metavar="N", help="many pods on one node: so many at once"
    )
    add_arguments(parser)
    supplied = parser.parse_args()
    plan = QUICK if supplied.quick else TURN if supplied.beside else FULL
    if supplied.pods:
        plan = many(supplied.pods)

    async def measure(program: Path | None, server: ApiServer | None) -> Results:
        async with make_stand(
            supplied.containerd,
            config=lambda _: {"maxPods": max(110, plan.idle_pods + 10)},
            program=program,
            prefix=PREFIX,
            server=server,
        ) as stand:
            stand.pods.patience = PATIENCE_S
            bench = Bench(stand, plan, supplied.containerd)
            await bench.run()
            return bench.results

    return run(supplied, measure)


if __name__ == "__main__":
    raise SystemExit(main())
