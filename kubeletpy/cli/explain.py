"""``kubeletpy explain``: why a pod of this node is in its state; without a pod, lists all of them.

``kubeletpy explain --node``: what the node runs short of, what was done about it, what would help.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from kubeletpy.cli import agent_socket
from kubeletpy.observe.explain.texts import one_line

WATCH_S = 1.0
MAX_ERROR = 2000
REMOVED_AFTER = 3
"""Consecutive lookups that find no such pod."""
_CLEAR = "\x1b[H\x1b[J"


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 when there is no agent or no such pod."""
    made = parser()
    parsed = made.parse_args(arguments)
    if parsed.node and parsed.pod:
        made.error("--node takes no POD")
    try:
        path = agent_socket.find(parsed.socket)
        if not parsed.watch:
            return once(parsed, path)
        return watch(lambda: answer(parsed, path))
    except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:
        print(f"kubeletpy explain: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy explain",
        description="Show what the agent on this machine has decided about a pod, when and why, "
        "and what it waits for. Without POD: every pod of the node in one line each.",
    )
    made.add_argument("pod", nargs="?", metavar="POD", help="NAME, NAMESPACE/NAME or UID")
    made.add_argument("-n", "--namespace", help="of the pod (default), or of those to list (all)")
    made.add_argument(
        "--node", action="store_true", help="what the node runs short of, and what would help"
    )
    made.add_argument("-w", "--watch", action="store_true", help="refresh once a second")
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


def names(parsed: argparse.Namespace) -> tuple[str, str]:
    """Namespace and name of the requested pod."""
    namespace, slash, name = parsed.pod.removeprefix("pod/").partition("/")
    return (namespace, name) if slash else (parsed.namespace or "default", namespace)


def once(parsed: argparse.Namespace, path: Path) -> int:
    """Print it. A removed pod is shown in its last state, with the exit code of one not found."""
    try:
        sys.stdout.write(answer(parsed, path).text)
    except agent_socket.NoSuchPod as error:
        if error.last is None:
            return _unknown(parsed, path, error)
        from kubeletpy.observe.explain import render

        if parsed.output == "json":
            print(json.dumps({"error": str(error), "last": error.last}, indent=2))
        else:
            print(f"{one_line(str(error), MAX_ERROR)}; this is how it was:\n")
            sys.stdout.write(render.pod(error.last, colors=_colors()))
        return 1
    return 0


def _unknown(parsed: argparse.Namespace, path: Path, error: agent_socket.NoSuchPod) -> int:
    """The agent does not have that pod: what its API has (`up`), and what is wrong here."""
    from kubeletpy.cli import own_api
    from kubeletpy.observe.explain import render
    from kubeletpy.observe.explain import unplaced as from_api

    kubeconfig, (namespace, name) = own_api.kubeconfig(path), names(parsed)
    try:
        # the node itself may not read pods of other nodes; root may, as the administrator
        read = partial(own_api.OwnApi.pod, namespace=namespace, name=name)
        notified = None if kubeconfig is None else own_api.once(kubeconfig, read)
    except own_api.OwnApiUnavailable:
        notified = None
    found = None if notified is None else from_api.unscheduled(notified.pod, notified.others)
    if notified is not None and parsed.output == "text":
        node_states = "" if found is not None else str(error)
        text = from_api.explain(
            notified.pod, notified.events, node_states, now=time.time(), others=notified.others
        )
        sys.stdout.write(text)
    elif found is not None:
        print(json.dumps({"error": str(error), "api": to_builtins(found)}, indent=2))
    else:
        print(f"kubeletpy explain: {error}", file=sys.stderr)
    about = agent_socket.get_json(path, "node")
    sys.stderr.write(render.first(about.get("name") or "", about["troubles"]))
    return 1


class ExplainOutput(NamedTuple):
    """The text to print, and the state to compare: the passing of time is no change."""

    text: str
    state: Any


def answer(parsed: argparse.Namespace, path: Path) -> ExplainOutput:
    """The output of one request. Raises NoAgent, NotFound."""
    from kubeletpy.observe.explain import render

    if parsed.node:
        about = agent_socket.get_json(path, "node")
        # the order requires a measurement of all pods, which is too much every second
        evictions = None if parsed.watch else _evictions(path)
        if parsed.output == "json":
            text = json.dumps({**about, "evictions": evictions}, indent=2) + "\n"
            return ExplainOutput(text, text)
        order = render.orders(evictions or ())
        parts = (
            render.node(about["pressure"]) + (f"\n{order}\n" if order else ""),
            render.troubles(about["troubles"]),
            render.version(about.get("version")),
            render.notices(about["without_effect"]),
        )
        # an agent of another version has no word of its connections; they change all the time
        api = render.connections(about.get("api"), time.time())
        return ExplainOutput("".join((*parts[:2], api, *parts[2:])), "".join(parts))
    place = ("pods", *names(parsed)) if parsed.pod else ("pods",)
    found = agent_socket.get_json(path, *place)
    unread = ""
    if not parsed.pod:
        unplaced, unread = _unplaced(path)
        found += unplaced
    if not parsed.pod and parsed.namespace:
        found = [each for each in found if each["namespace"] == parsed.namespace]
    state = _state(found) if parsed.pod else [_state(each) for each in found]
    if parsed.output == "json":
        sys.stderr.write(unread)
        return ExplainOutput(json.dumps(found, indent=2) + "\n", state)
    if parsed.pod:
        return ExplainOutput(render.pod(found, colors=_colors()), state)
    about = agent_socket.get_json(path, "node")
    troubles = about["troubles"]
    text = render.first(about.get("name") or "", troubles)
    text += render.pods(found, colors=_colors()) + unread
    return ExplainOutput(text, [troubles, state, unread])


def _unplaced(path: Path) -> tuple[list[Any], str]:
    """The pods that no node has, which only the API of `up` shows; why they are not known."""
    from kubeletpy.cli import own_api

    kubeconfig = own_api.kubeconfig(path)
    if kubeconfig is None:
        return [], ""
    try:
        return own_api.once(kubeconfig, lambda api: api.unplaced()), ""
    except own_api.OwnApiUnavailable as error:
        return [], f"pods that no node has are not shown: {one_line(str(error), MAX_ERROR)}\n"


def _evictions(path: Path) -> Any:
    """In which order pods would be evicted; None: unknown, and the reason was printed."""
    try:
        return agent_socket.get_json(path, "evictions")
    except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:  # of another version, or slow
        print(f"kubeletpy explain: who would be evicted is not known: {error}", file=sys.stderr)
        return None


def _state(view: Any) -> Any:
    """The fields of a pod whose change is news: no duration and no time."""
    keys = ("namespace", "name", "uid", "state", "healthy", "cause", "phase", "ready")
    containers = [
        [each[key] for key in ("name", "state", "reason", "ready", "restarts")]
        for each in view.get("containers") or ()
    ]
    return [*(view.get(key) for key in keys), (view.get("worker") or {}).get("state"), containers]


def _colors() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def watch(show: Callable[[], ExplainOutput]) -> int:
    """Show it repeatedly: in place on a terminal, else only when it has changed.

    If the agent exits meanwhile, wait for it: the user is watching what happens next.
    An agent that has just started may not have the pod yet.
    Raises NoAgent when there is none to begin with, and NotFound also when the pod was removed.
    """
    in_place, missed = sys.stdout.isatty(), 0
    last: Any = None
    try:
        while True:
            try:
                (text, state), missed = show(), 0
            except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:
                missed += isinstance(error, agent_socket.NoSuchPod)
                if last is None or missed >= REMOVED_AFTER:
                    raise
                text = state = f"{error}\n"
            if in_place:
                sys.stdout.write(_CLEAR + text)
            elif state != last:
                sys.stdout.write(text + "\n")
            sys.stdout.flush()
            last = state
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return 0
