"""Complete waterfalls as drawn: each span at its start, with its length."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Chapter as Part
from kubeletpy.metrics.trace.model import PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.model import (
    Bar,
    Exit,
    Timeline,
    TimelineChapter,
    Wait,
    WaitKind,
    from_json,
    timeline,
)

OFFSET = 1000.0
SANDBOX_OF_WEB = Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 10.0, 11.0)
IMAGE = "registry.example/team/a-long-image-name:1.2.3"


def whole() -> Timeline:
    """A pod seen at 9.5 s, taken up at 10 s, Ready at 12 s, terminating since 13 s; now is 15 s."""
    trace = PodTrace(
        "uid", "default", "web", 10.0, Part.END, ready_at=12.0, ended_at=15.0, dropped=2
    )
    trace.start = [
        Span(Step.VOLUMES, "", 10.0, 10.02),
        Span(Step.RUNTIME, "", 10.02, 11.9),
        Span(TraceCall.START_PLACE, "", 10.02, 10.32),
        Span(TraceCall.CHECK_UP_IMAGE, "in the place", 10.12, 10.32),
        Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 10.32, 11.02),
        Span(TraceCall.PULL_IMAGE, IMAGE, 10.4, 11.4, "401 <no>"),
        Span(TraceCall.WRITE_STATUS, "Running", 11.9, 11.9),
    ]
    trace.end = [
        Span(Step.KILL, "", 13.0, 14.75),
        Span(TraceCall.PRE_STOP, "main", 13.0, 13.25),
        Span(TraceCall.STOP_CONTAINER, "main", 13.25, 14.5),
        Span(TraceCall.STOP_POD_SANDBOX, "", 14.5, 14.75),
    ]
    trace.open[7] = Span(TraceCall.REMOVE_CGROUP, "", 14.75)
    inits = [Exit("schema", 0, 0, "", "", OFFSET + 11.1, OFFSET + 11.3)]
    return timeline(trace, OFFSET, OFFSET + 9.5, 15.0, inits)


WIDE = """\
default/web  start: 2500 ms from first sight to the Ready status being written \
(2 more spans were not kept)
  wait for its worker                         +0.0 ms    500 ms │██████▊                           │
  volumes                                     +500 ms     20 ms │      █▏                          │
  wait for a place to start in                +520 ms    300 ms │       ████▏                      │
    look up image in the place                +620 ms    200 ms │        ███▏                      │
  RunPodSandbox attempt 0                     +820 ms    700 ms │           █████████▋             │
  pull image registry.example/team/a-long…    +900 ms   1000 ms │            █████████████▉        │
    failed: 401 <no>
  init container runs schema                 +1600 ms    200 ms │                     ███▌         │
  write status Running                       +2400 ms    0.0 ms │                                ▊ │

default/web  end: 2000 ms from the first stop to the pod being done with
  kill                    +0.0 ms   1750 ms │███████████████████████████████████████████████▎      │
    preStop hook main     +0.0 ms    250 ms │██████▊                                               │
    StopContainer main    +250 ms   1250 ms │      ██████████████████████████████████▌             │
    StopPodSandbox       +1500 ms    250 ms │                                        ███████▎      │
  remove cgroup          +1750 ms   250 ms… │                                               ███████│
"""
"""34 columns are 2500 ms, then 54 are 2000 ms; the last cell of a bar has eighths."""

NARROW = """\
default/web  start: 2500 ms from first sight to the Ready status being written \
(2 more spans were not kept)
  wait for its worker     +0.0 ms    500 ms │██▊           │
  volumes                 +500 ms     20 ms │  ▉           │
  wait for a place to…    +520 ms    300 ms │  ██▋         │
    look up image in …    +620 ms    200 ms │   █▋         │
  RunPodSandbox attem…    +820 ms    700 ms │    ████▌     │
  pull image registry…    +900 ms   1000 ms │     █████▋   │
    failed: 401 <no>
  init container runs…   +1600 ms    200 ms │         █▏   │
  write status Running   +2400 ms    0.0 ms │             ▋│

default/web  end: 2000 ms from the first stop to the pod being done with
  kill                    +0.0 ms   1750 ms │████████████▎ │
    preStop hook main     +0.0 ms    250 ms │█▊            │
    StopContainer main    +250 ms   1250 ms │ █████████▌   │
    StopPodSandbox       +1500 ms    250 ms │          ██▎ │
  remove cgroup          +1750 ms   250 ms… │            ██│
"""
"""Names get 20 columns, bars 14."""


def test_text() -> None:
    assert render.text(whole()) == WIDE
    assert render.text(whole(), 60) == NARROW


def test_the_smallest_of_terminals_and_the_last_moment() -> None:
    """Names get 20 columns, bars 10; a span without length at the end is still drawn."""
    trace = PodTrace("uid", "default", "web", 10.0, ready_at=12.0)
    trace.start = [SANDBOX_OF_WEB, Span(TraceCall.WRITE_STATUS, "Running, Ready", 12.0, 12.0)]
    for width in (20, 40, 50):
        rows = render.text(timeline(trace, 0.0, None, 13.0), width).split("\n")
        assert rows[1:3] == [
            "  RunPodSandbox attem…    +0.0 ms   1000 ms │█████     │",
            "  write status Runnin…   +2000 ms    0.0 ms │         █│",
        ]


def test_a_pod_that_was_found_running_has_no_bars() -> None:
    found = timeline(PodTrace("uid", "default", "web", 10.0), OFFSET, OFFSET + 9, 10.0)
    assert render.text(found) == (
        "default/web  start: not ready yet (this agent found the pod's sandbox running when it "
        "started)\n"
    )


SANDBOX = Span(TraceCall.RUN_POD_SANDBOX, "", 4000.0, 4001.0)


@pytest.mark.parametrize(
    ("seen_at", "waited"),
    [
        (None, None),
        (4000.1, None),  # after the worker took the pod up: the clock was set back
        (4000.0, None),
        (3999.9996, None),  # shorter than the shortest span that is kept
        (3999.999, 0.001),
        (400.5, 3599.5),
        (400.0, None),  # another run of the agent, or a clock that was set
    ],
)
def test_waiting_for_a_worker(seen_at: float | None, waited: float | None) -> None:
    trace = PodTrace("uid", "default", "web", 4000.0, start=[SANDBOX])
    found = timeline(trace, 0.0, seen_at, 4002.0).start
    first = [bar for bar in found.spans if bar.name is TraceCall.WAIT_FOR_WORKER]
    assert [bar.end for bar in first] == ([] if waited is None else [pytest.approx(waited)])
    assert {bar.depth for bar in first} <= {0}
    assert found.began == pytest.approx(
        4000.0 - (waited or 0.0) if seen_at != 3999.9996 else seen_at
    )


@pytest.mark.parametrize(
    ("began", "ended", "drawn"),
    [
        (10.0, 10.5, False),  # before the agent took the pod up, or just then
        (10.1, 10.5, True),
        (11.5, 12.0, False),  # restarted while the pod was Ready
        (11.5, 11.9, True),
        (None, 11.0, False),
        (11.0, None, False),
    ],
)
def test_runs_of_init_containers(began: float | None, ended: float | None, drawn: bool) -> None:
    trace = PodTrace("uid", "default", "web", 10.0, ready_at=12.0, start=[SANDBOX])
    first, last = (None if at is None else OFFSET + at for at in (began, ended))
    run = Exit("i", 0, 0, "", "", first, last)
    bars = timeline(trace, OFFSET, None, 13.0, [run]).start.spans
    assert (TraceCall.INIT_RUNS in [bar.name for bar in bars]) is drawn


def test_all_runs_of_init_containers_belong_to_an_unfinished_start() -> None:
    trace = PodTrace("uid", "default", "web", 10.0, start=[SANDBOX_OF_WEB])
    run = Exit("i", 0, 0, "", "", OFFSET + 11.5, OFFSET + 12.5)
    assert [bar.detail for bar in timeline(trace, OFFSET, None, 13.0, [run]).start.spans] == [
        "attempt 0",
        "i",
    ]


def test_an_open_span_belongs_to_the_current_chapter() -> None:
    goes_on = {1: Span(TraceCall.STOP_CONTAINER, "main", 14.0)}
    start = PodTrace("uid", "default", "web", 10.0, open=goes_on)
    assert timeline(start, 0.0, None, 15.0).start.spans == (
        Bar(TraceCall.STOP_CONTAINER, "main", 4.0, 5.0, 0, "", True),
    )
    assert timeline(start, 0.0, None, 15.0).end is None
    ready = PodTrace("uid", "default", "web", 10.0, open=goes_on, ready_at=12.0)
    assert timeline(ready, 0.0, None, 15.0).start.spans == ()
    ended = PodTrace(
        "uid", "default", "web", 10.0, end=[Span(Step.KILL, "", 12.0, 13.0)], open=goes_on
    )
    found = timeline(ended, OFFSET, None, 15.0)
    assert found.start.spans == ()
    assert found.end is not None
    assert (found.end.began, found.end.total, found.end.note) == (OFFSET + 12.0, None, "")


@pytest.mark.parametrize(
    ("outer", "inner", "depth"),
    [
        ((1.0, 3.0), (2.0, 3.0), 1),
        ((1.0, 3.0), (2.0, 3.1), 0),
        ((1.0, None), (2.0, 3.1), 1),
        ((1.0, 3.0), (2.0, None), 0),
        ((1.0, 3.0), (1.0, 2.0), 1),
        ((1.0, 2.0), (1.0, 3.0), 1),
    ],
)
def test_an_outer_span_is_above_an_inner_one(outer: Any, inner: Any, depth: int) -> None:
    """The longer of two spans that begin together is the outer one."""
    spans = [Span(Step.VOLUMES, "", *outer), Span(Step.CGROUP, "", *inner)]
    trace = PodTrace("uid", "default", "web", 0.0, start=spans)
    _, *bars = timeline(trace, 0.0, None, 4.0).start.spans
    assert [bar.depth for bar in bars] == [depth]


@pytest.mark.parametrize(
    ("total", "end", "seconds"),
    [(None, None, 0.001), (0.0, 0.0005, 0.001), (0.5, 0.25, 0.5), (None, 2.0, 2.0)],
)
def test_the_time_that_the_width_shows(
    total: float | None, end: float | None, seconds: float
) -> None:
    bars = () if end is None else (Bar(TraceCall.PULL_IMAGE, "", 0.0, end, 0),)
    assert render.scale(TimelineChapter(Part.START, 0.0, total, bars)) == seconds


REFUSED = """\
default/web  start: it was never Ready
  admission    +500 ms    0.0 ms
    failed: OutOfcpu: too much
"""


def test_a_pod_that_was_refused() -> None:
    """The missing start is not attributed to an earlier agent."""
    refused = [Span(TraceCall.ADMIT, "", 10.5, 10.5, "OutOfcpu: too much")]
    trace = PodTrace("uid", "default", "web", 10.0, start=refused, ended_at=10.5)
    found = timeline(trace, OFFSET, None, 20.0, has_sandbox=False)
    assert _without_bars(render.text(found)) == REFUSED


LIVES = """\
default/web  start: 2000 ms from first sight to the Ready status being written
  RunPodSandbox attempt 0    +0.0 ms   1000 ms

default/web  life: its last 4 steps since it was Ready, from {began} (10s ago)
  CreateContainer main    +0.0 ms    100 ms
  StartContainer main     +100 ms    400 ms
    failed: StartContainer 4cee: unknown: exec: "/nope": stat /nope: no such file or directory
  back-off main           +500 ms  9500 ms…
  write status Running    +500 ms    0.0 ms

now: not running: it keeps ending

Waits for
  crash backoff  main  until {until} (in 30s)  CrashLoopBackOff: back-off 40s
"""
NOPE = (
    "StartContainer 4cee: unknown: failed to create containerd task: failed to create shim task: "
    'OCI runtime create failed: exec: "/nope": stat /nope: no such file or directory'
)


def test_a_pod_that_crashes_once_it_was_ready() -> None:
    """Steps since the pod was Ready, their durations, and the current wait with its end."""
    trace = PodTrace("uid", "default", "web", 10.0, Part.LIFE, ready_at=12.0)
    trace.start = [SANDBOX_OF_WEB]
    trace.later.extend(
        [
            Span(TraceCall.CREATE_CONTAINER, "main", 20.0, 20.1),
            Span(TraceCall.START_CONTAINER, "main", 20.1, 20.5, NOPE),
            Span(TraceCall.WRITE_STATUS, "Running", 20.5, 20.5),
            Span(TraceCall.BACK_OFF, "main", 20.5, 60.0),
        ]
    )
    found = timeline(trace, OFFSET, None, 30.0)
    assert found.life is not None
    assert (found.life.began, found.life.total) == (OFFSET + 20.0, None)
    (waits,) = (bar for bar in found.life.spans if bar.name is TraceCall.BACK_OFF)
    assert (waits.going_on, waits.end) == (True, 10.0)
    wait = Wait(
        WaitKind.CRASH_BACKOFF, "main", "CrashLoopBackOff: back-off 40s", None, OFFSET + 60.0
    )
    reported = replace(
        found, verdict="not running: it keeps ending", waits=(wait,), at=OFFSET + 30.0
    )
    times = {"{began}": OFFSET + 20.0, "{until}": OFFSET + 60.0}
    lives = LIVES
    for name, at in times.items():
        lives = lives.replace(name, datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S"))
    assert _without_bars(render.text(reported)) == lives
    assert from_json(json.loads(json.dumps(to_builtins(reported)))) == reported


def _without_bars(text: str) -> str:
    return re.sub(r" *│.*│$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("span", "reported"),
    [
        (Span(TraceCall.WRITE_STATUS, "Running, Ready", 20.0, 20.1), False),
        (Span(Step.VOLUMES, "", 20.0, 20.1), False),
        (Span(Step.VOLUMES, "", 20.0, 20.1, "no such secret"), True),
        (Span(TraceCall.RESIZE, "web", 20.0, 20.1), True),
        (Span(TraceCall.STOP_CONTAINER, "main", 20.0, 20.1), True),
    ],
)
def test_spans_that_make_a_life_chapter(span: Span, reported: bool) -> None:
    trace = PodTrace("uid", "default", "web", 10.0, Part.LIFE, ready_at=12.0)
    trace.later.append(span)
    assert (timeline(trace, OFFSET, None, 30.0).life is not None) is reported


def test_a_wait_that_is_over_has_its_own_end() -> None:
    spans = [SANDBOX_OF_WEB, Span(TraceCall.BACK_OFF, "i", 12.0, 14.0)]
    trace = PodTrace("uid", "default", "web", 10.0, start=spans)
    _, bar = timeline(trace, 0.0, None, 30.0).start.spans
    assert (bar.start, bar.end, bar.going_on) == (2.0, 4.0, False)


def test_a_pod_that_ended_without_having_been_ready() -> None:
    trace = PodTrace("uid", "default", "web", 10.0, start=[SANDBOX_OF_WEB])
    trace.ready(12.0, ended=True)
    assert render.text(timeline(trace, 0.0, None, 30.0)).splitlines()[0] == (
        "default/web  start: 2000 ms from first sight to its end being written; it was never Ready"
    )
