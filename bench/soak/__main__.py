"""``python -m bench.soak``: churn with faults on a real containerd; fails when anything is left."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from bench.soak.faults import LONGEST
from bench.soak.run import Plan, Soak, report, soak


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument(
        "--containerd", type=int, choices=(1, 2), default=2, help="major version; 2 has CRI events"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="duration of the churn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kill-every", type=float, default=20.0, help="mean seconds between kills of the agent"
    )
    parser.add_argument(
        "--longest", type=float, default=LONGEST, help="maximum duration of a fault, in seconds"
    )
    parser.add_argument("--keep-log", type=Path, metavar="FILE", help="write the agent's log here")
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    plan = Plan(
        supplied.containerd,
        supplied.minutes * 60,
        supplied.seed,
        supplied.kill_every,
        supplied.longest,
    )
    try:
        result = asyncio.run(run(plan, supplied.keep_log))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(report(result))
    return 1 if result.violations else 0


async def run(plan: Plan, keep: Path | None) -> Soak:
    """Run one soak; everything it started is removed afterwards, even if it is interrupted."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await soak(plan, keep)


if __name__ == "__main__":
    raise SystemExit(main())
