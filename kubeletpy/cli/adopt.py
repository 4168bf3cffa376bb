"""``kubeletpy adopt``: takes over the node of a running kubelet, and watches it."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kubeletpy.agent.takeover.adopt.adoption import AdoptOptions, Journal, Operator, adopt
from kubeletpy.agent.takeover.adopt.steps import WatchOutcome
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT
from kubeletpy.base.api.times import parse_duration
from kubeletpy.cli.adoption import run_as_root
from kubeletpy.cli.agent_socket import refused_statuses
from kubeletpy.cli.deploy_files import deploy_files
from kubeletpy.cli.endings import STOP_SIGNALS
from kubeletpy.cli.process import problems_here

DEPLOYED = "kubelet.service.d/20-kubeletpy.conf"
MAX_WATCH_S = 7 * 24 * 3600.0


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 if the agent has the node."""
    parsed = parser().parse_args(arguments)
    return run_as_root(
        "adopt",
        parsed,
        partial(_adopt, parsed),
        interrupted="interrupted: the node has been returned to the kubelet",
        # another signal must not interrupt the way back; the end of the terminal begins it, too
        numbers=(*STOP_SIGNALS, signal.SIGHUP),
    )


async def _adopt(parsed: argparse.Namespace, operator: Operator, journal: Journal) -> bool:
    options = AdoptOptions(
        parsed.program,
        deploy_files()[DEPLOYED],
        problems_here,
        refused_statuses,
        parsed.unit,
        parsed.watch,
        parsed.despite_preflight,
    )
    verdict = await adopt(options, operator, journal)
    operator.report(f"{verdict.outcome}: {verdict.why}")
    return verdict.outcome is WatchOutcome.CONFIRM


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy adopt",
        description="On a node where a kubelet runs, have the kubelet's systemd unit start this "
        "agent, and watch the node. If it is not Ready in time, a container restarts, a pod loses "
        "its readiness or the API does not accept a status, the node returns to the kubelet. Until "
        "the watch has ended, a reboot does the same.",
        epilog="To give the node back later: kubeletpy give-back.",
    )
    made.add_argument("--watch", type=duration, default=600.0, metavar="TIME", help="10m")
    made.add_argument("--yes", action="store_true", help="do not have the node's name typed")
    made.add_argument("--unit", default=DEFAULT_UNIT, help=f"the kubelet's unit ({DEFAULT_UNIT})")
    this = str(Path(sys.argv[0]).absolute())
    made.add_argument(
        "--program", metavar="PATH", default=this, help="what the unit starts (this program)"
    )
    made.add_argument(
        "--despite-preflight",
        action="store_true",
        help="go on although preflight does not call it safe; pods that it calls restarted, "
        "stopped or refused may be",
    )
    made.add_argument("--record", action="store_true", help="print what was done on this node")
    return made


def duration(text: str) -> float:
    """A positive time such as 10m, in seconds. Raises ValueError."""
    seconds = parse_duration(text)
    if not 0 < seconds <= MAX_WATCH_S:
        raise ValueError(text)
    return seconds
