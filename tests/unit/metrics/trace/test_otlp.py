"""Spans in a real collector: parents, attributes, errors, sampling, and an absent collector."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack

import pytest

from kubeletpy.agent.launch.start import start_tracing
from kubeletpy.config.settings import Tracing
from kubeletpy.metrics.trace.model import NO_TRACER, Step, TraceCall
from kubeletpy.metrics.trace.otlp import OtlpTracer
from kubeletpy.metrics.trace.spans import Traces, span
from tests.unit.metrics.trace.collector import attributes, collecting

ALL = 1_000_000


async def test_steps_of_a_pod_are_below_its_sync() -> None:
    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        traces = Traces(tracer)
        traces.enter("u", "ns", "p")
        with tracer.span("syncPod", {"k8s.pod.uid": "u"}) as sync:
            with (
                span(Step.RUNTIME),
                span(TraceCall.CREATE_CONTAINER, "c"),
                tracer.span("runtime.v1/X", {"n": 3}, client=True) as call,
            ):
                version, *notified, flags = call.carrier["traceparent"].split("-")
            with pytest.raises(ValueError, match="broke"), span(Step.VOLUMES):
                raise ValueError("broke")
            sync.failed("volumes: broke")
        await tracer.close()
    names = [each.name for each in collector.spans]
    assert names == ["runtime.v1/X", "CreateContainer", "runtime sync", "volumes", "syncPod"]
    root, call_span = collector.named("syncPod"), collector.named("runtime.v1/X")
    above = {each.span_id: each.name for each in collector.spans}
    parents = [above.get(each.parent_span_id) for each in collector.spans]
    assert parents == ["CreateContainer", "runtime sync", "syncPod", "syncPod", None]
    assert notified == [root.trace_id.hex(), call_span.span_id.hex()]
    assert (version, int(flags, 16) & 1) == ("00", 1), "and it is sampled"
    assert attributes(root) == {"k8s.pod.uid": "u"}
    assert attributes(call_span) == {"n": 3}
    assert attributes(collector.named("CreateContainer")) == {"detail": "c"}
    assert call_span.kind == call_span.SPAN_KIND_CLIENT
    failed = collector.named("volumes").status
    assert (failed.code, failed.message) == (failed.STATUS_CODE_ERROR, "broke")
    assert root.status.message == "volumes: broke"
    assert collector.resource["service.name"] == "kubelet"
    assert collector.resource["host.name"] == "n1"


async def test_a_task_that_outlives_its_span_begins_a_trace_of_its_own() -> None:
    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        go_on = asyncio.Event()

        async def probe() -> None:
            with tracer.span("early", {}, client=True):
                pass
            await go_on.wait()
            with tracer.span("late", {}, client=True):
                pass

        with tracer.span("syncPod", {}) as sync:
            task = asyncio.create_task(probe())
            await asyncio.sleep(0)
            assert sync.carrier == {}
        go_on.set()
        await task
        await tracer.close()
    root = collector.named("syncPod")
    assert collector.named("early").parent_span_id == root.span_id
    assert collector.named("late").parent_span_id == b""
    assert collector.named("late").trace_id != root.trace_id


async def test_a_request_from_outside_is_a_trace_of_its_own_with_what_it_calls() -> None:
    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        with (
            tracer.span("around", {}),
            tracer.request("/pods", lambda: {"n": 3}),
            tracer.span("call", {}, client=True),
        ):
            pass
        await tracer.close()
    request = collector.named("/pods")
    assert (request.parent_span_id, request.kind) == (b"", request.SPAN_KIND_SERVER)
    assert attributes(request) == {"n": 3}
    assert collector.named("call").parent_span_id == request.span_id


async def test_unsampled_spans_are_not_sent_and_the_context_is_marked() -> None:
    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, 1, "n1")
        ends = set()
        for _ in range(100):
            with tracer.span("syncPod", {}), tracer.span("call", {}, client=True) as call:
                ends.add(int(call.carrier["traceparent"][-2:], 16) & 1)
        await tracer.close()
    assert ends == {0}
    assert collector.spans == []


async def test_a_collector_that_refuses_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with collecting() as collector:
        collector.refuses = True
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")

        async def send() -> None:
            with tracer.span("syncPod", {}):
                pass
            assert await asyncio.to_thread(tracer._provider.force_flush)

        await send()
        await send()
        collector.refuses = False
        await send()
        await tracer.close()
    assert len(collector.spans) == 1
    stated = [(each.levelname, each.message) for each in caplog.records]
    assert stated == [
        ("WARNING", "the collector takes no spans: they are dropped until it does"),
        ("INFO", "the collector takes spans again"),
    ]
    assert "not you" in caplog.records[0].__dict__["why"]


async def test_an_absent_collector_does_not_delay_the_close() -> None:
    tracer = OtlpTracer("127.0.0.1:1", ALL, "n1")
    with tracer.span("syncPod", {}):
        pass
    began = asyncio.get_running_loop().time()
    await tracer.close()
    assert asyncio.get_running_loop().time() - began < 4


async def test_a_tracer_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack, collecting() as collector:
        endpoint = f"dns://192.0.2.1/{collector.endpoint}"
        tracer, notices = start_tracing(Tracing(endpoint, ALL), "n", stack)
        assert notices == ()
        with tracer.span("syncPod", {}):
            pass
        await stack.aclose()
        assert [each.name for each in collector.spans] == ["syncPod"]
        monkeypatch.setitem(sys.modules, "kubeletpy.metrics.trace.otlp", None)
        tracer, [notice] = start_tracing(Tracing("x:1", 5), "n", stack)
        assert (tracer, notice.name) == (NO_TRACER, "tracing.samplingRatePerMillion")
        assert "install kubeletpy[tracing]" in notice.consequence
