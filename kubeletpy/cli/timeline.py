"""``kubeletpy timeline``: how the start (and the end) of a pod went, step by step."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubeletpy.cli import agent_socket
from kubeletpy.cli.explain import names


def main(arguments: Sequence[str]) -> int:
    """Run a command line; gives the exit code: 1 when there is no agent or no such pod."""
    given = parser().parse_args(arguments)
    try:
        found = agent_socket.ask(agent_socket.find(given.socket), "pods", *names(given), "timeline")
    except (agent_socket.NoAgent, agent_socket.NotFound) as error:
        print(f"kubeletpy timeline: {error}", file=sys.stderr)
        return 1
    if given.output == "json":
        print(json.dumps(found, indent=2))
        return 0
    return show(found, given.svg)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy timeline",
        description="Show each step and call of a pod's start and end, with its milliseconds.",
    )
    made.add_argument("pod", metavar="POD", help="NAME, or NAMESPACE/NAME")
    made.add_argument("-n", "--namespace", default="default")
    made.add_argument("--svg", metavar="FILE", help="write a drawing there as well")
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def show(found: dict[str, Any], svg: str | None) -> int:
    """Print a timeline, and write it as SVG if asked to; gives the exit code."""
    from kubeletpy.explain import render_timeline
    from kubeletpy.explain.timeline import from_json

    line = from_json(found)
    width = min(shutil.get_terminal_size((120, 24)).columns, 180)
    sys.stdout.write(render_timeline.text(line, width))
    if svg:
        try:
            Path(svg).write_text(render_timeline.svg(line))
        except OSError as error:
            print(f"kubeletpy timeline: {svg} can't be written: {error}", file=sys.stderr)
            return 1
    return 0
