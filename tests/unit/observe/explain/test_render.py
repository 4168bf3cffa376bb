"""Rendered text and drawings, from which control characters of pods are removed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.metrics.trace.model import Chapter, PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.model import Exit, Timeline, from_json, timeline
from kubeletpy.observe.explain.texts import duration, milliseconds, one_line
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


def test_the_complete_text() -> None:
    text = render.pod(as_json(explain(facts(**crash()))))
    lines = text.split("\n")
    assert lines[0].startswith("default/web: not running: container main keeps exiting")
    assert "\nWaits for\n  crash backoff  main  until " in text
    assert " (in 14s)  CrashLoopBackOff: back-off 20s\n" in text
    assert "\nLast errors\n  8s ago  sync failed  no answer\n" in text
    assert (
        "\nLast decisions\n"
        "  6s ago   3 times  start container main       it exited\n"
        "  30s ago           create sandbox, attempt 0  the pod has no sandbox\n"
    ) in text
    assert "Ended runs\n  main  exit code 3 Error  20s ago" in text
    assert "\x1b" not in text


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


def test_colors_only_on_request() -> None:
    view = as_json(explain(facts(**crash())))
    assert "\x1b[31m" in render.pod(view, colors=True)
    lines = [as_json(line(facts())), as_json(line(facts(**crash())))]
    assert "\x1b[31m" in render.pods(lines, colors=True)
    plain = render.pods(lines)
    assert plain.split("\n")[1] == "default/web  running and ready, for 20s"
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


def drawn(trace: PodTrace | None = None, **more: Any) -> Timeline:
    found = timeline(trace or start(), OFFSET, OFFSET + 9.9, 12.0, **more)
    return from_json(json.loads(json.dumps(to_builtins(found))))


def test_the_waterfall_begins_when_the_pod_was_first_seen() -> None:
    found = drawn().start
    assert [(p.name, round(p.start, 3), round(p.end, 3)) for p in found.spans] == [
        ("wait for its worker", 0.0, 0.1),
        ("volumes", 0.1, 0.11),
        ("RunPodSandbox", 0.11, 0.3),
        ("pull image", 0.15, 0.25),
        ("PodSandboxStatus", 0.3, 0.31),
        ("write status", 0.48, 0.5),
    ]
    assert found.total == pytest.approx(0.5)
    assert found.began == pytest.approx(OFFSET + 9.9)


def test_runs_of_init_containers_are_part_of_the_start() -> None:
    ran = Exit("first", 0, 0, "Completed", "", OFFSET + 10.25, OFFSET + 10.3)
    later = Exit("first", 0, 0, "Completed", "", OFFSET + 20, OFFSET + 21)
    names = [(p.name, p.detail) for p in drawn(inits=[ran, later]).start.spans]
    assert names.count((TraceCall.INIT_RUNS, "first")) == 1


def test_open_spans_are_drawn_to_the_present() -> None:
    trace = start()
    trace.chapter = Chapter.END
    trace.open[1] = Span(TraceCall.STOP_CONTAINER, "main", 11.0, until=41.0)
    end = drawn(trace).end
    assert end is not None
    assert end.total is None
    (bar,) = end.spans
    assert (bar.start, bar.end, bar.going_on) == (0.0, 1.0, True)
    assert "1000 ms…" in render.text(drawn(trace))


def test_a_pod_that_was_found_running_has_no_start() -> None:
    trace = PodTrace("uid", "default", "web", 10.0)
    found = drawn(trace).start
    assert "found the pod's sandbox running" in found.note


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_text_keeps_to_the_terminal(width: int) -> None:
    text = render.text(drawn(), width)
    assert "\x1b" not in text
    bars = [each for each in text.split("\n") if each.endswith("│")]
    assert len(bars) == 6
    assert len({len(each) for each in bars}) == 1
    assert len(bars[0]) <= max(width, 66)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.44, "0.4s"), (9.96, "10s"), (59.7, "1m"), (192, "3m12s"), (10980, "3h3m"),
     (400000, "4d"), (-1, "0s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_milliseconds_and_lines() -> None:
    assert [milliseconds(s) for s in (0.0004, 0.012, 0.34, 12.34)] == [
        "0.4 ms",
        "12 ms",
        "340 ms",
        "12.3 s",
    ]
    assert one_line(EVIL) == "]0;owned FAKE LINE <script>"
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
