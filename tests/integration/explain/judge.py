"""Four questions about an unhealthy pod, with a point for each answer.

Its cause, since when, what it waits for and until when, what is to be done. Each has to be answered
by `kubeletpy explain` alone, as text and as JSON. The truth is taken from the API: its events and
the times in its objects. Must never query the agent but through the command.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.cli import explain, timeline
from tests.integration.node.machine import Node

EARLY_S, LATE_S = 2.0, 4.0
"""How far from the truth a time may be: the API's times are whole seconds, and CI is slow."""
DAY = r"(?:\d{4}-\d\d-\d\d )?"
"""The date before a time of day that is not of today: a test may run over midnight."""


@dataclass(frozen=True)
class Told:
    """Output of the command for one pod."""

    text: str
    pod: Any
    """The JSON."""


@dataclass(frozen=True)
class Truth:
    """The pod's events in the API."""

    events: list[JSON]

    def event(self, reason: str) -> float:
        """When the first of these events was."""
        return min(
            parse_time(each["firstTimestamp"]) for each in self.events if each["reason"] == reason
        )


@dataclass(frozen=True)
class Sick:
    """A pod and the true answers.

    Attributes:
        verdict: words of the first line.
        cause: the fixed word.
        since: when it went wrong first.
        waits: kind and subject of what it waits for first, until a time.
        hint: words of what to do.
    """

    name: str
    verdict: tuple[str, ...]
    cause: str
    since: Callable[[Truth], float]
    waits: tuple[str, str]
    hint: tuple[str, ...]


def command_output(main: Callable[[list[str]], int], node: Node, *arguments: str) -> str:
    """Output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main([*arguments, "--socket", str(node.root_dir / "explain.sock")])
    return out.getvalue()


def explain_pod(node: Node, namespace: str, name: str) -> Told:
    """Run ``kubeletpy explain`` for one pod, as text and as JSON."""
    text = command_output(explain.main, node, "-n", namespace, name)
    found = command_output(explain.main, node, "-n", namespace, name, "-o", "json")
    try:
        whole, _ = json.JSONDecoder().raw_decode(found)  # the node's problems follow on stderr
        return Told(text, whole)
    except ValueError:
        return Told(text, {"verdict": found, "waits": []})


def drawn(node: Node, namespace: str, name: str) -> str:
    """The pod's timeline."""
    return command_output(timeline.main, node, "-n", namespace, name)


def wrong(sick: Sick, truth: Truth, stated: Told) -> dict[str, str]:
    """The questions that are not answered -> what is wrong with the answer."""
    found: dict[str, str] = {}
    for question, check in {
        "what is it": _cause,
        "since when": _since,
        "what does it wait for": _waits,
        "what to do": _to_do,
    }.items():
        try:
            check(sick, truth, stated)
        except (AssertionError, LookupError, ValueError) as error:
            found[question] = f"{type(error).__name__}: {error}"
    return found


def _cause(sick: Sick, _truth: Truth, stated: Told) -> None:
    first = next(line for line in stated.text.splitlines() if f"/{sick.name}: " in line)
    assert stated.pod["cause"] == sick.cause, stated.pod["cause"]
    for parts in sick.verdict:
        assert parts in stated.pod["verdict"], (parts, stated.pod["verdict"])
        assert parts in first, (parts, first)


def _since(sick: Sick, truth: Truth, stated: Told) -> None:
    true, found = sick.since(truth), stated.pod["first_seen"]
    assert -EARLY_S <= found - true <= LATE_S, f"{found - true:+.1f} s from the truth"
    reported = re.search(rf"^  Since +{DAY}(\S+)", stated.text, re.MULTILINE)
    assert reported is not None
    moment = datetime.fromtimestamp(found).astimezone()
    assert moment.strftime("%H:%M:%S") == reported[1] or parse_time(reported[1]) == found, reported[
        1
    ]


def _waits(sick: Sick, _truth: Truth, stated: Told) -> None:
    kind, subject = sick.waits
    first, at = stated.pod["waits"][0], stated.pod["at"]
    assert first["kind"] == kind, first
    assert subject in first["subject"], first
    assert not stated.pod["final"]
    row = re.search(rf"^Waits for\n  {kind}  (.*)", stated.text, re.MULTILINE)
    assert row is not None
    assert 0 <= first["until"] - at + 1 <= 301, first["until"] - at
    assert re.search(rf"until {DAY}\d\d:\d\d:\d\d \((in |now)", row[1]), row[1]


def _to_do(sick: Sick, _truth: Truth, stated: Told) -> None:
    hint = stated.pod["hint"]
    for parts in sick.hint:
        assert parts in hint, (parts, hint)
    assert f"\n  To do      {hint}\n" in stated.text
