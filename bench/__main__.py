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
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import FULL, QUICK, TURN, Bench, Plan, many
from bench.results import Results, table
from bench.server import ApiServer, existing, of_release
from bench.stand import NODE, make_stand
from bench.turns import side_by_side
from tools.control_plane.building import RELEASED_KUBELET, programs
from tools.control_plane.releases import NEWEST, release

PREFIX = 22
"""Prefix length of the pod networks: 1,021 addresses."""
PATIENCE_S = 1200.0
_BUILT = Path("kubelet")
"""Stands for a Go kubelet that is built first."""


def main() -> int:
    """Measure with the given arguments, print the figures, and return the exit code.

    Everything that a run started is removed afterwards, also if SIGTERM or Ctrl-C ends it.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the agent on a private containerd, beside raw CRI calls.",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="less than a minute, few samples")
    sizes.add_argument(
        "--pods", type=int, nargs="+", metavar="N", help="many pods on one node: so many at once"
    )
    parser.add_argument(
        "--containerd", type=int, choices=(1, 2), default=2, help="major version; 2 has CRI events"
    )
    servers = parser.add_mutually_exclusive_group()
    servers.add_argument(
        "--kubernetes",
        type=release,
        metavar="VERSION",
        help="build and use a control plane of this release instead of the embedded API",
    )
    servers.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="use this control plane, as administrator"
    )
    parser.add_argument(
        "--agent", type=Path, metavar="PROGRAM", help="measure this Go kubelet (or similar) instead"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="PROGRAM",
        nargs="?",
        const=_BUILT,
        help="alternate the agent with this Go kubelet; by default with that of the release, built "
        "as Kubernetes releases it",
    )
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of each agent")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    supplied = parser.parse_args()
    plan = QUICK if supplied.quick else TURN if supplied.beside else FULL
    if supplied.pods:
        plan = many(supplied.pods)
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    if supplied.beside == _BUILT:
        supplied.beside = programs(supplied.kubernetes or NEWEST, RELEASED_KUBELET) / _BUILT
    begun = time.monotonic()
    figures: object
    try:
        with _server(supplied) as server:

            def one(program: Path | None) -> Results:
                return asyncio.run(
                    _until_signal(_measure(plan, supplied.containerd, program, server))
                )

            if supplied.beside:
                agents = supplied.agent, supplied.beside
                turns = [[one(each) for each in agents] for _ in range(supplied.turns)]
                names = [each.name if each else "kubeletpy" for each in agents]
                print(side_by_side(names, turns))
                every = [each for turn in turns for each in turn]
                figures = [[each.as_json() for each in turn] for turn in turns]
            else:
                results = one(supplied.agent)
                print(table(results))
                every = [results]
                figures = results.as_json()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(f"{time.monotonic() - begun:.0f} s")
    if supplied.json is not None:
        supplied.json.write_text(json.dumps(figures, indent=2) + "\n")
    failures = [each.failure for each in every if each.failure]
    for failure in failures:
        print(f"bench: not measured to the end: {failure}", file=sys.stderr)
    return 1 if failures else 0


@contextmanager
def _server(supplied: argparse.Namespace) -> Iterator[ApiServer | None]:
    """The API server that the user names; None: an embedded one for each run."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if supplied.kubeconfig:
        yield existing(supplied.kubeconfig)
    elif supplied.kubernetes:
        with (
            tempfile.TemporaryDirectory(prefix="kpb-", dir="/tmp") as directory,
            of_release(supplied.kubernetes, Path(directory) / "api", NODE) as server,
        ):
            yield server
    else:
        yield None


async def _until_signal(measuring: Coroutine[Any, Any, Results]) -> Results:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await measuring


async def _measure(
    plan: Plan, generation: int, program: Path | None, server: ApiServer | None
) -> Results:
    """One run with a program other than our agent, or an API server other than the embedded one."""
    async with make_stand(
        generation,
        config=lambda _: {"maxPods": max(110, plan.idle_pods + 10)},
        program=program,
        prefix=PREFIX,
        server=server,
    ) as stand:
        stand.pods.patience = PATIENCE_S
        bench = Bench(stand, plan, generation)
        await bench.run()
        return bench.results


if __name__ == "__main__":
    raise SystemExit(main())
