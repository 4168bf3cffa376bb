"""``kubeletpy give-back``: gives a node that was taken over back to its kubelet."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import sys
from collections.abc import Sequence

from kubeletpy.agent.takeover.adopt.host import HostError, SystemdHost, read_node, running_agent
from kubeletpy.agent.takeover.adopt.run import Answers, Journal, Runner
from kubeletpy.agent.takeover.adopt.steps import AdoptionStep, UnitProgram
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT
from kubeletpy.base.clock import SystemClock
from kubeletpy.cli.adopt import AdoptionRefused, answers, confirm, not_checked, print_progress, show
from kubeletpy.cli.endings import run_until_signalled


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 if the kubelet has the node."""
    supplied = parser().parse_args(arguments)
    if supplied.record:
        return show(Journal())
    if os.geteuid() != 0:
        return _fail("run it as root")
    logging.getLogger("kubeletpy").setLevel(logging.ERROR)
    try:
        return run_until_signalled(_give_back(supplied), patience=math.inf)
    except (AdoptionRefused, HostError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; run it again to complete it")


async def _give_back(supplied: argparse.Namespace) -> int:
    journal, host = Journal(), SystemdHost(supplied.unit)
    seen = await asyncio.to_thread(host.unit)
    check: Answers = not_checked
    name = os.uname().nodename
    if seen.running is UnitProgram.AGENT:
        try:
            node = await asyncio.to_thread(read_node, running_agent(seen.pid))
            name, check = node.name, answers(node)
        except HostError as error:
            # the way back must not need them
            print_progress(f"the agent's settings can't be read: {error}")
    confirm(supplied, name, "give it back")
    why = "no watch has confirmed the agent" if supplied.unconfirmed else "it was requested"
    runner = Runner(host, check, journal, SystemClock(), print_progress)
    steps = await runner.give_back(why, unconfirmed=supplied.unconfirmed)
    if AdoptionStep.RELOAD not in steps:
        print_progress("nothing to do")
        return 0
    seen = await asyncio.to_thread(host.unit)
    print_progress(f"unit {supplied.unit} runs {seen.running}")
    return 0 if seen.running is UnitProgram.KUBELET else 1


def _fail(problem: str) -> int:
    print(f"kubeletpy give-back: {problem}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy give-back",
        description="Have the kubelet's systemd unit start the kubelet again: removes the drop-in "
        "of kubeletpy adopt and restarts the unit. Also finishes a run of adopt or give-back that "
        "was killed.",
    )
    made.add_argument("--yes", action="store_true", help="do not have the node's name typed")
    made.add_argument("--unit", default=DEFAULT_UNIT, help=f"the kubelet's unit ({DEFAULT_UNIT})")
    made.add_argument(
        "--unconfirmed", action="store_true", help="only if no watch has confirmed the agent"
    )
    made.add_argument("--record", action="store_true", help="print what was done on this node")
    return made
