"""``kubeletpy explain``: why a pod of this node is as it is; without a pod, all of them.

``kubeletpy explain --node``: what the node runs short of, what was done about it, what would help.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.cli import agent_socket

WATCH_S = 1.0
GONE_AFTER = 3
"""Looks in a row that find no such pod."""
_CLEAR = "\x1b[H\x1b[J"


def main(arguments: Sequence[str]) -> int:
    """Run a command line; gives the exit code: 1 when there is no agent or no such pod."""
    asked = parser()
    given = asked.parse_args(arguments)
    if given.node and given.pod:
        asked.error("--node takes no POD")
    try:
        path = agent_socket.find(given.socket)
        if not given.watch:
            sys.stdout.write(answer(given, path))
            return 0
        return watch(lambda: answer(given, path))
    except (agent_socket.NoAgent, agent_socket.NotFound) as error:
        print(f"kubeletpy explain: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy explain",
        description="Show what the agent on this machine has decided about a pod, when and why, "
        "and what it waits for. Without POD: every pod of the node in one line each.",
    )
    made.add_argument("pod", nargs="?", metavar="POD", help="NAME, or NAMESPACE/NAME")
    made.add_argument("-n", "--namespace", default="default")
    made.add_argument(
        "--node", action="store_true", help="what the node runs short of, and what would help"
    )
    made.add_argument("-w", "--watch", action="store_true", help="go on, once a second")
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def names(given: argparse.Namespace) -> tuple[str, str]:
    """Namespace and name of the pod that was asked for."""
    namespace, slash, name = given.pod.removeprefix("pod/").partition("/")
    return (namespace, name) if slash else (given.namespace, namespace)


def answer(given: argparse.Namespace, path: Path) -> str:
    """What to print. Raises NoAgent, NotFound."""
    from kubeletpy.explain import render, render_pressure

    if given.node:
        about = agent_socket.ask(path, "node")["pressure"]
        as_json = given.output == "json"
        return json.dumps(about, indent=2) + "\n" if as_json else render_pressure.node(about)
    parts = ("pods", *names(given)) if given.pod else ("pods",)
    found = agent_socket.ask(path, *parts)
    if given.output == "json":
        return json.dumps(found, indent=2) + "\n"
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    show = render.pod if given.pod else render.pods
    return show(found, colours=colours)


def watch(show: Callable[[], str]) -> int:
    """Show it again and again: on a terminal in place, else only when it has changed.

    An agent that goes away meanwhile is waited for: who watches wants to see what comes of it. One
    that has just come back may not know the pod yet.
    Raises NoAgent when there is none to begin with, and NotFound also when the pod has gone.
    """
    in_place, last, missed = sys.stdout.isatty(), "", 0
    try:
        while True:
            try:
                text, missed = show(), 0
            except (agent_socket.NoAgent, agent_socket.NotFound) as error:
                missed += isinstance(error, agent_socket.NotFound)
                if not last or missed >= GONE_AFTER:
                    raise
                text = f"{error}\n"
            if in_place:
                sys.stdout.write(_CLEAR + text)
            elif text != last:
                sys.stdout.write(text + "\n")
            sys.stdout.flush()
            last = text
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return 0
