"""``kubeletpy preflight``: what would happen if this agent took over this node. Read-only."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence

from kubeletpy.agent.takeover.preflight import findings
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT, Options, gather
from kubeletpy.cli.endings import run_until_signalled
from kubeletpy.cli.process import problems_here


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 if nothing would be restarted or is unclear."""
    line = list(arguments)
    flags: list[str] = []
    if "--" in line:
        at = line.index("--")
        line, flags = line[:at], line[at + 1 :]
    parsed = parser().parse_args(line)
    if os.geteuid() != 0:
        print(
            "kubeletpy preflight: run it as root: state files are readable by root alone",
            file=sys.stderr,
        )
        return 1
    options = Options(parsed.unit or "", parsed.pid or 0, tuple(flags), parsed.only_flags)
    logging.getLogger("kubeletpy").setLevel(logging.CRITICAL)  # the report has all of it
    report = run_until_signalled(gather(options, problems_here))
    if parsed.output == "json":
        print(json.dumps(findings.document(report), indent=2))
    else:
        sys.stdout.write(findings.text(report))
    return 0 if report.safe else 1


def parser() -> argparse.ArgumentParser:
    """The command line, without the kubelet's flags after ``--``."""
    made = argparse.ArgumentParser(
        prog="kubeletpy preflight",
        usage="kubeletpy preflight [options] [-- KUBELET_FLAGS]",
        description="On a node where a kubelet runs, show what would happen if this agent took "
        "over. The report lists settings with no or another effect, the state that it would take "
        "over, and rights that it lacks in the API. It states for each pod whether it is kept, "
        "restarted or not admitted. Nothing is changed. The exit code is 0 only if no pod would "
        "be restarted or end, and nothing is unclear.",
        epilog="Flags after -- are added to the kubelet's own and win over them, such as "
        "-- --config=/etc/k3s/kubelet.yaml.",
    )
    made.add_argument("--unit", help=f"the kubelet's systemd unit ({DEFAULT_UNIT})")
    made.add_argument("--pid", type=int, help="the kubelet's process")
    made.add_argument(
        "--only-flags",
        action="store_true",
        help="use the flags after -- alone: for a kubelet inside another program, as k3s's",
    )
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return made
