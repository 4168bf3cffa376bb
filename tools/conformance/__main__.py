"""Run Kubernetes' end-to-end tests on a node of this agent or of the Go kubelet, as root.

    python -m tools.conformance run --kubernetes v1.37 --agent kubeletpy --agent kubelet
    python -m tools.conformance run --virtual bookworm --focus "Pod Level Resources"
    python -m tools.conformance run --nodes 2 --focus "\\[Conformance\\]" --skip NOTHING
    python -m tools.conformance table

The programs are built first, which takes minutes once for a release and requires Go. A node is a
process of this machine, or a virtual machine with systemd and cgroup v2 (:mod:`tools.lab`). Several
nodes have kube-proxy, Services and DNS.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tools.conformance.node import AGENTS
from tools.conformance.results import Outcome, differing, outcomes, table
from tools.conformance.suite import FOCUS, SKIP, Choice, Features, Machines, run_tests
from tools.control_plane.releases import NEWEST, release
from tools.env.process import CommandError
from tools.env.waiting import NotReadyError
from tools.lab.recipe import SUITES
from tools.lab.requests import GuestError

REPORTS = Path("build/conformance")
_ISOLATED = "KUBELETPY_CONFORMANCE_ISOLATED"
"""A variable that is set once the process has a mount namespace of its own."""


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run tests; their reports replace those of earlier runs")
    runs.add_argument("--kubernetes", type=release, action="append", help=f"default: {NEWEST}")
    runs.add_argument("--agent", choices=AGENTS, action="append", help="default: kubeletpy")
    runs.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="number of nodes; several form a cluster"
    )
    runs.add_argument(
        "--virtual",
        choices=SUITES,
        default="",
        metavar="SUITE",
        help="nodes are virtual machines of this Debian, with systemd and cgroup v2",
    )
    runs.add_argument(
        "--ipv6-first",
        action="store_true",
        help="the first addresses of several nodes, their pods and Services are those of IPv6",
    )
    runs.add_argument(
        "--kernel", choices=SUITES, default="", help="the Debian of the virtual machine's kernel"
    )
    runs.add_argument("--focus", default=FOCUS, help="run tests that match this regular expression")
    runs.add_argument("--skip", default=SKIP, help="skip tests that match this regular expression")
    runs.add_argument(
        "--at-once", type=int, default=10, metavar="N", help="number of parallel tests"
    )
    runs.add_argument(
        "--gate", action="append", default=[], metavar="NAME=BOOL", help="set a feature gate"
    )
    runs.add_argument(
        "--runtime-config",
        action="append",
        default=[],
        metavar="API=BOOL",
        help="enable an API version of the API server, such as api/all=true",
    )
    reported = commands.add_parser("table", help="show the results of all runs, and differences")
    for sub in (runs, reported):
        sub.add_argument("--reports", type=Path, default=REPORTS, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.command == "run" and arguments.kernel and not arguments.virtual:
        parser.error("--kernel is that of a virtual machine: it needs --virtual")
    if arguments.command == "run" and arguments.ipv6_first and arguments.nodes < 2:
        parser.error("--ipv6-first is for a cluster: it needs --nodes 2")
    if arguments.command == "run" and _ISOLATED not in os.environ:
        os.environ[_ISOLATED] = "1"
        unshare = ("unshare", "--mount", "--propagation", "private")
        os.execvp(unshare[0], [*unshare, *sys.orig_argv])
    for each in (signal.SIGINT, signal.SIGTERM):  # a shell lets its background jobs ignore SIGINT
        signal.signal(each, signal.default_int_handler)
    if arguments.command == "run":
        gates = {
            name: value.lower() == "true"
            for name, _, value in (gate.partition("=") for gate in arguments.gate)
        }
        features = Features(gates, arguments.runtime_config)
        choice = Choice(arguments.focus, arguments.skip, arguments.at_once)
        machines = Machines(
            arguments.nodes, arguments.virtual, arguments.kernel, arguments.ipv6_first
        )
        for number in arguments.kubernetes or [NEWEST]:
            for agent in arguments.agent or ["kubeletpy"]:
                column = f"{agent}{machines.column}"
                output = (arguments.reports / number / column).absolute()
                shutil.rmtree(output, ignore_errors=True)
                began = time.monotonic()
                try:
                    run_tests(number, agent, choice, output, features=features, machines=machines)
                except (CommandError, GuestError, NotReadyError) as error:
                    print(f"{number}, {column}: {error}", file=sys.stderr)
                    return 1
                print(f"{number}, {column}: {time.monotonic() - began:.0f} s", flush=True)
    _show(arguments.reports)
    return 0


def _show(reports: Path) -> None:
    runs: dict[tuple[str, str], dict[str, Outcome]] = {}
    for file in sorted(reports.glob("*/*/*junit*.xml")):
        number, agent = file.parts[-3:-1]
        runs.setdefault((number, agent), {}).update(outcomes(file.read_text()))
    print(table(runs))
    for (number, agent), found in sorted(runs.items()):
        failed = sorted(test for test, outcome in found.items() if outcome is Outcome.FAILED)
        print(f"\n{number}, {agent}: {len(failed)} failed", *failed, sep="\n  ")
    for number, agent in sorted(runs):
        other = AGENTS[1] + agent.removeprefix(AGENTS[0])
        if agent.startswith(AGENTS[0]) and (number, other) in runs:
            lines = differing(runs[number, agent], runs[number, other])
            print(f"\n{number}: {len(lines)} ended differently with {agent} and {other}")
            print(*lines, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
