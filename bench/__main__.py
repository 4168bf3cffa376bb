"""``python -m bench``: measure, print a table, and save the figures if requested."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import FULL, QUICK, TURN, Bench, Plan
from bench.results import Results, table
from bench.server import ApiServer, existing, of_release
from bench.stand import NODE, make_stand
from bench.turns import side_by_side
from tools.control_plane.releases import release


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the agent on a private containerd, beside raw CRI calls.",
    )
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2, help="2: with events")
    parser.add_argument("--quick", action="store_true", help="about a minute, few samples")
    servers = parser.add_mutually_exclusive_group()
    servers.add_argument(
        "--kubernetes",
        type=release,
        metavar="VERSION",
        help="with a control plane of this release, which is built, instead of the embedded API",
    )
    servers.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="with this control plane, as administrator"
    )
    parser.add_argument(
        "--agent", type=Path, metavar="PROGRAM", help="measure a Go kubelet (or its like) instead"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="PROGRAM", help="let a Go kubelet take turns with the agent"
    )
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="of both agents")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    begun = time.monotonic()
    plan = QUICK if given.quick else TURN if given.beside else FULL
    figures: object
    try:
        with _server(given) as server:
            if given.beside:
                programs = given.agent, given.beside
                turns = [
                    [measure(given.containerd, plan, each, server) for each in programs]
                    for _ in range(given.turns)
                ]
                names = [each.name if each else "kubeletpy" for each in programs]
                print(side_by_side(names, turns))
                every = [each for turn in turns for each in turn]
                figures = [[each.as_json() for each in turn] for turn in turns]
            else:
                results = measure(given.containerd, plan, given.agent, server)
                print(table(results))
                every = [results]
                figures = results.as_json()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(f"{time.monotonic() - begun:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    failures = [each.failure for each in every if each.failure]
    for failure in failures:
        print(f"bench: not measured to the end: {failure}", file=sys.stderr)
    return 1 if failures else 0


@contextmanager
def _server(given: argparse.Namespace) -> Iterator[ApiServer | None]:
    """The API server that the user names; None: an embedded one for each run."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.kubeconfig:
        yield existing(given.kubeconfig)
    elif given.kubernetes:
        with (
            tempfile.TemporaryDirectory(prefix="kpb-", dir="/tmp") as directory,
            of_release(given.kubernetes, Path(directory) / "api", NODE) as server,
        ):
            yield server
    else:
        yield None


def measure(generation: int, plan: Plan, program: Path | None, server: ApiServer | None) -> Results:
    """One run; everything it started is gone afterwards, even if it is interrupted."""
    return asyncio.run(_measure(generation, plan, program, server))


async def _measure(
    generation: int, plan: Plan, program: Path | None, server: ApiServer | None
) -> Results:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with make_stand(generation, program=program, server=server) as stand:
        bench = Bench(stand, plan, generation)
        await bench.run()
        return bench.results


if __name__ == "__main__":
    raise SystemExit(main())
