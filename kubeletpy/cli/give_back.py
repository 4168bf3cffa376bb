"""``kubeletpy give-back``: gives a node that was taken over back to its kubelet."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kubeletpy.agent.takeover.adopt.adoption import Journal, Operator, give_back
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT
from kubeletpy.cli.adoption import run_as_root


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 if the kubelet has the node."""
    parsed = parser().parse_args(arguments)

    async def begin(operator: Operator, journal: Journal) -> bool:
        return await give_back(parsed.unit, operator, journal, unconfirmed=parsed.unconfirmed)

    interrupted = "interrupted; run it again to complete it"
    return run_as_root("give-back", parsed, begin, interrupted=interrupted)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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
