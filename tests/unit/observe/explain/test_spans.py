"""Spans of pods: which pod they belong to, which are kept, and their cost."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.metrics.trace.model import (
    MAX_LATER,
    MAX_OPEN,
    MAX_START,
    MAX_TEXT,
    Chapter,
    Step,
    TraceCall,
)
from kubeletpy.metrics.trace.spans import Traces, note, span
from tests.kit.costs import calls
from tests.kit.virtual_time import on_virtual_time


@on_virtual_time
async def test_spans_belong_to_the_pod_that_the_task_entered() -> None:
    traces = Traces()

    async def work(uid: str, seconds: float) -> None:
        traces.enter(uid, "default", uid)
        with span(TraceCall.RUN_POD_SANDBOX, "attempt 0"):
            await asyncio.sleep(seconds)
        # a background call still belongs to the pod
        await asyncio.ensure_future(inner())

    async def inner() -> None:
        with span(TraceCall.START_CONTAINER, "main"):
            await asyncio.sleep(0.5)

    await asyncio.gather(asyncio.ensure_future(work("a", 1.0)), asyncio.ensure_future(work("b", 2)))
    with span(Step.VOLUMES):
        await asyncio.sleep(1)

    for uid, seconds in (("a", 1.0), ("b", 2.0)):
        trace = traces.pod_trace(uid)
        assert trace is not None
        spans = [(s.name, s.detail, s.began, s.ended) for s in trace.start]
        assert spans == [
            ("RunPodSandbox", "attempt 0", 0.0, seconds),
            ("StartContainer", "main", seconds, seconds + 0.5),
        ]
        assert trace.open == {}


@on_virtual_time
async def test_running_calls_are_open_with_their_limit_and_failed_ones_have_a_reason() -> None:
    traces = Traces()
    trace = traces.enter("a", "default", "a")

    async def stop() -> None:
        with span(TraceCall.STOP_CONTAINER, "main", limit=30):
            await asyncio.sleep(100)

    task = asyncio.ensure_future(stop())
    await asyncio.sleep(5)
    (going_on,) = trace.open.values()
    assert (going_on.name, going_on.began, going_on.until, going_on.ended) == (
        "StopContainer",
        0,
        30,
        None,
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ValueError, match="no"), span(TraceCall.CREATE_CONTAINER):
        raise ValueError("no")
    assert [(s.name, s.error) for s in trace.start] == [
        ("StopContainer", "cut short"),
        ("CreateContainer", "no"),
    ]
    assert trace.open == {}


@on_virtual_time
async def test_short_spans_are_dropped_unless_they_are_milestones() -> None:
    trace = Traces().enter("a", "default", "a")
    with span(Step.PULL_SECRETS):
        pass
    with span(TraceCall.RUN_POD_SANDBOX, milestone=True):
        pass
    assert [span.name for span in trace.start] == ["RunPodSandbox"]


@on_virtual_time
async def test_the_start_ends_with_ready_and_the_end_has_a_list_of_its_own() -> None:
    traces = Traces()
    trace = traces.enter("a", "default", "a")
    await asyncio.sleep(1)
    traces.written("a", 0.9, "Running, not ready", ready=False)
    traces.written("a", 0.95, "Running, Ready", ready=True)
    assert trace.ready_at == 1
    traces.written("a", 1.0, "again", ready=True)
    assert trace.chapter is Chapter.LIFE
    assert [span.detail for span in trace.later] == ["again"]
    trace.ending()
    traces.written("a", 1.0, "Failed", ready=True)
    assert [span.detail for span in trace.end] == ["Failed"]
    traces.removed("a")
    assert trace.ended_at == 1
    traces.written("unknown", 0, "", ready=True)
    traces.removed("unknown")


@on_virtual_time
async def test_spans_are_bounded() -> None:
    traces = Traces(max_pods=3)
    for number in range(5):
        traces.enter(f"u{number}", "default", "same")
    assert [trace.uid for trace in traces] == ["u2", "u3", "u4"]
    found = traces.find("default", "same")
    assert found is not None
    assert found.uid == "u4"
    assert traces.find("other", "same") is None
    trace = traces.enter("u4", "default", "same")
    for _ in range(MAX_START + 5):
        with span(TraceCall.STOP_CONTAINER, milestone=True):
            pass
    assert (len(trace.start), trace.dropped) == (MAX_START, 5)
    trace.ready(0)
    for _ in range(MAX_LATER + 5):
        with span(TraceCall.STOP_CONTAINER, milestone=True):
            pass
    assert len(trace.later) == MAX_LATER
    held = [span(TraceCall.STOP_CONTAINER) for _ in range(MAX_OPEN + 5)]
    for each in held:
        each.__enter__()
    assert len(trace.open) == MAX_OPEN
    for each in held:
        each.__exit__(None, None, None)
    assert trace.open == {}


@on_virtual_time
async def test_refusals_and_waits_are_recorded() -> None:
    """A refusal takes no time; a wait has its end, and counts once however often it is found."""
    traces = Traces()
    note(TraceCall.BACK_OFF, "nobody's", lasts=5)
    trace = traces.enter("a", "default", "a")
    note(TraceCall.CHECK_UP_IMAGE, "UPPER", error="invalid" * MAX_TEXT)
    note(TraceCall.BACK_OFF, "main", lasts=10)
    await asyncio.sleep(4)
    note(TraceCall.BACK_OFF, "main", lasts=6.2)
    note(TraceCall.BACK_OFF, "other", lasts=6)
    await asyncio.sleep(6)
    note(TraceCall.BACK_OFF, "main", lasts=20)
    found = [(span.name, span.detail, span.began, span.ended) for span in trace.start]
    assert found == [
        (TraceCall.CHECK_UP_IMAGE, "UPPER", 0, 0),
        (TraceCall.BACK_OFF, "main", 0, 10),
        (TraceCall.BACK_OFF, "other", 4, 10),
        (TraceCall.BACK_OFF, "main", 10, 30),
    ]
    assert len(trace.start[0].error) == MAX_TEXT
    assert trace.open == {}


@on_virtual_time
async def test_a_pod_that_was_refused_has_a_trace() -> None:
    traces = Traces()
    traces.refused("a", "default", "web", "OutOfcpu: " + MAX_TEXT * "x")
    found = traces.find("default", "web")
    assert found is not None
    assert [(span.name, len(span.error)) for span in found.start] == [(TraceCall.ADMIT, MAX_TEXT)]
    assert found.ended_at == 0


async def test_a_start_costs_few_calls() -> None:
    """A start has about 20 spans."""
    traces = Traces()

    def start() -> None:
        traces.enter("uid", "default", "a")
        for _ in range(20):
            with span(TraceCall.START_CONTAINER, "main", milestone=True):
                pass

    assert calls(start) < 520
