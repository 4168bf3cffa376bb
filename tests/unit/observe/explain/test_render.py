"""Rendered text and drawings, from which control characters of pods are removed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.metrics.trace.model import PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.model import Timeline, from_json, timeline
from kubeletpy.pods.runtime_status import Decision, ProbeOutcome, ProbeResults, StartError
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from tests.unit.observe.explain.facts import NOW, OFFSET, exited, facts, not_ready, running, waiting
from tests.unit.podworkers.builders import make_pod

EVIL = "\x1b]0;owned\x07\nFAKE LINE <script>"


def as_json(found: Any) -> Any:
    return json.loads(json.dumps(to_builtins(found)))


def crash() -> dict[str, Any]:
    return {
        "status": not_ready(
            waiting("CrashLoopBackOff", restartCount=3, lastState=exited(3)["state"])
        ),
        "start_errors": {"main": StartError("CrashLoopBackOff", "back-off 20s", NOW + 14)},
        "history": (
            HistoryEntry(NOW - 30, Decision("create sandbox, attempt 0", "the pod has no sandbox")),
            HistoryEntry(NOW - 29, Decision("start container main", "it exited"), 3, NOW - 6),
            HistoryEntry(NOW - 8, Decision("sync failed", "no answer", failed=True)),
        ),
    }


def test_a_node_on_which_everything_works_has_no_such_paragraphs() -> None:
    assert (render.notices([]), render.troubles([])) == ("", "")
    setting = {"name": "a", "value": "b\n", "consequence": "none"}
    assert render.notices([setting]) == "\nSet without effect\n  a=b: none\n"
    assert render.troubles(["x\ny"]) == "\nDoes not work\n  x y\n"


def test_probes_and_their_messages() -> None:
    bad, ok = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS
    parts = f"no database{EVIL}" + 500 * "x"
    reports = (
        ProbeReport("main", ProbeKind.READINESS, bad, ProbeFinding(bad, parts),
                    98.0, 2, 3, 101.0),
        ProbeReport("main", ProbeKind.LIVENESS, ok, ProbeFinding(ok, ""), 95.0, 9, 1, 105.0),
        ProbeReport("main", ProbeKind.STARTUP, None),
    )  # fmt: skip
    pod = make_pod(containers=[{"name": "main", "image": "i", "readinessProbe": {}}])
    status = not_ready(running(ready=False), phase="Running")
    results = ProbeResults(readiness={"main": bad})
    found = facts(pod, status=status, probes=results, probe_reports=reports)
    text = render.pod(as_json(explain(found)))
    assert text.startswith(
        "default/web: running, not ready: its readiness probe fails: no database ]0;owned "
    )
    rows = text.split("\nProbes\n")[1].split("\n")
    assert rows[0].startswith("  main  readiness  counts as failure  last failure")
    assert "2s ago  next in 1s  no database ]0;owned FAKE LINE" in rows[0]
    assert rows[1].split() == [
        "main",
        "liveness",
        "counts",
        "as",
        "success",
        "last",
        "success",
        "5s",
        "ago",
        "next",
        "in",
        "5s",
    ]
    assert rows[2].split() == ["main", "startup", "not", "run", "yet"]
    assert max(map(len, rows)) < 260
    assert "\x1b" not in text


def test_a_node_without_pods() -> None:
    assert render.pods([]) == "no pods on this node\n"


def test_what_pods_say_stays_on_its_line() -> None:
    changes = crash()
    changes["start_errors"] = {"main": StartError("CrashLoopBackOff", EVIL, NOW + 1)}
    changes["history"] = (HistoryEntry(NOW, Decision(EVIL, EVIL)),)
    changes["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = EVIL
    for text in (
        render.pod(as_json(explain(facts(**changes)))),
        render.pods([as_json(line(facts(**changes)))]),
    ):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert not any(each.startswith("FAKE") for each in text.split("\n"))


def start() -> PodTrace:
    trace = PodTrace("uid", "default", "web", 10.0, ready_at=10.4)
    trace.start = [
        Span(Step.VOLUMES, "", 10.0, 10.01),
        Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 10.01, 10.2),
        Span(TraceCall.POD_SANDBOX_STATUS, "", 10.2, 10.21),
        Span(TraceCall.PULL_IMAGE, EVIL, 10.05, 10.15, "no such <host>"),
        Span(TraceCall.WRITE_STATUS, "Running, Ready", 10.38, 10.4),
        Span(Step.RUNTIME, "", 10.01, 10.38),
    ]
    return trace


def drawn() -> Timeline:
    found = timeline(start(), OFFSET, OFFSET + 9.9, 12.0)
    return from_json(json.loads(json.dumps(to_builtins(found))))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_text_keeps_to_the_terminal(width: int) -> None:
    text = render.text(drawn(), width)
    assert "\x1b" not in text
    bars = [each for each in text.split("\n") if each.endswith("│")]
    assert len(bars) == 6
    assert len({len(each) for each in bars}) == 1
    assert len(bars[0]) <= max(width, 66)
