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

FORMATS = ("text", "json", "svg", "html")


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 when there is no agent or no such pod."""
    parsed = parser().parse_args(arguments)
    try:
        found = agent_socket.get_json(
            agent_socket.find(parsed.socket), "pods", *names(parsed), "timeline"
        )
    except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:
        print(f"kubeletpy timeline: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(reported(found, parsed.output))
    return save(found, parsed.svg) if parsed.svg else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy timeline",
        description="Show each step and call of a pod's start and end, with its milliseconds.",
    )
    made.add_argument("pod", metavar="POD", help="NAME, NAMESPACE/NAME or UID")
    made.add_argument("-n", "--namespace", default="default")
    made.add_argument("--svg", metavar="FILE", help="also write a drawing to this file")
    made.add_argument(
        "-o", "--output", choices=FORMATS, default="text", help="svg and html: for reports"
    )
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def reported(found: dict[str, Any], output: str) -> str:
    """A timeline, as the agent answers, in one of the FORMATS."""
    if output == "json":
        return json.dumps(found, indent=2) + "\n"
    from kubeletpy.observe.explain import render
    from kubeletpy.observe.explain.model import from_json

    line = from_json(found)
    if output == "text":
        width = min(shutil.get_terminal_size((120, 24)).columns, 180)
        return render.text(line, width)
    from kubeletpy.observe.view import drawing

    return drawing.svg(line) if output == "svg" else drawing.html(line)


def save(found: dict[str, Any], svg: str) -> int:
    """Write the drawing to a file; returns the exit code."""
    try:
        Path(svg).write_text(reported(found, "svg"), encoding="utf-8")
    except OSError as error:
        print(f"kubeletpy timeline: {svg} can't be written: {error}", file=sys.stderr)
        return 1
    return 0
