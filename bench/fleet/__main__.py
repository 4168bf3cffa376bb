"""``python -m bench.fleet``: run a fleet on virtual time and keep what its API server counted."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.fleet.run import PHASES, Fleet, Plan, Record, without_mounts
from bench.fleet.tally import codes, per_second, rates
from tests.sim import loop


def main() -> None:
    """Run, print a line per phase, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1, help="pods on each node")
    parser.add_argument("--binds", type=float, default=250.0, help="pods bound per second")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument(
        "--last", nargs="+", default=[], metavar="PHASE=S", help="duration of phases, in seconds"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--server",
        type=float,
        default=1.0,
        help="size of the server, as a factor of the default seats and queues",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    requested = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(50_000, 50, 100)
    lengths = {
        f"{name}_s": float(s) for name, _, s in (each.partition("=") for each in requested.last)
    }
    lengths["server"] = requested.server
    plan = Plan(
        requested.nodes,
        requested.pods,
        requested.binds,
        requested.phases,
        requested.seed,
        **lengths,
    )
    begun = time.monotonic()

    def say(text: str) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        print(
            f"{text:<9} done after {time.monotonic() - begun:5.0f} s "
            f"({cpu:.0f} s of CPU, {peak:.0f} MiB)",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="fleet-") as root, without_mounts():
        record = loop.run(_run(plan, Path(root), say))
    _print(record)
    if requested.json is not None:
        requested.json.write_text(json.dumps(record.as_json(), separators=(",", ":")) + "\n")


async def _run(plan: Plan, root: Path, say: Callable[[str], None]) -> Record:
    fleet = Fleet(plan, root, say)
    try:
        return await fleet.run()
    finally:
        await fleet.stop()


def _print(record: Record) -> None:
    for phase in record.phases:
        found = rates(per_second(record.rows, phase))
        answers = " ".join(f"{code}:{n}" for code, n in sorted(codes(record.rows, phase).items()))
        print(
            f"{phase.name:<9} {phase.end - phase.start:5d} s  mean {found.mean:8.1f}/s  "
            f"peak {found.peak:6d}/s at {found.peak_at:4d} s  {answers}"
        )
    for name, value in record.facts.items():
        print(f"{name}: {value:g}")


if __name__ == "__main__":
    main()
