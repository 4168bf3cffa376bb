"""Spans in a real collector: parents, attributes, errors, sampling, and an absent collector."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from kubeletpy.agent.launch.start import start_tracing
from kubeletpy.config.settings import Tracing
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.metrics.trace import otlp
from kubeletpy.metrics.trace.model import NO_TRACER, Step, TraceCall
from kubeletpy.metrics.trace.otlp import OtlpTracer
from kubeletpy.metrics.trace.spans import Traces, span
from kubeletpy.podworkers.records import RunSync, Stage, SyncOutcome, UpdateType, Work
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.api import answer, failure, lines, serving, stream
from tests.kit.pods import make_pod, runtime_status
from tests.kit.remote import version
from tests.kit.traces import Recording, attributes, collecting
from tests.unit.remote.conftest import Dial, Serve, dial, serve, short_dir

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


async def test_an_absent_collector_does_not_delay_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "CLOSE_S", 0.01)
    tracer = OtlpTracer("127.0.0.1:1", ALL, "n1")
    with tracer.span("syncPod", {}):
        pass
    await tracer.close()
    assert tracer._exporter._closed, "it gave up what it was sending"


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


# Calls to runtime and API as spans, and the trace context that they pass on.

__all__ = ["dial", "serve", "short_dir"]


class ReceivedMetadata:
    """Answers Version and keeps the metadata of the call (gRPC frees it afterwards)."""

    def __init__(self) -> None:
        self.metadata: dict[str, str] = {}

    def version(self, request: Any, context: Any) -> cri.VersionResponse:
        """The answer to Version."""
        self.metadata = {key: str(value) for key, value in context.invocation_metadata()}
        return version(request, context)


async def test_calls_to_the_runtime(serve: Serve, dial: Dial) -> None:
    def not_found(_request: object, context: object) -> None:
        context.set_code(5)  # type: ignore[attr-defined]
        context.set_details("no such container")  # type: ignore[attr-defined]

    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        notified = ReceivedMetadata()
        server = await serve(Version=notified.version, StopContainer=not_found)
        client: RemoteRuntime = dial(server.endpoint, tracer=tracer)
        with tracer.span("syncPod", {}):
            await client.version()
            with pytest.raises(CRIError):
                await client.stop_container("c1", 3)
        await tracer.close()
    call = collector.named("runtime.v1.RuntimeService/Version")
    root = collector.named("syncPod")
    assert call.parent_span_id == root.span_id
    assert attributes(call) == {
        "rpc.method": "runtime.v1.RuntimeService/Version",
        "rpc.system.name": "grpc",
        "rpc.response.status_code": "OK",
        "server.address": server.endpoint,
    }
    assert notified.metadata["traceparent"].split("-")[1:3] == [
        root.trace_id.hex(),
        call.span_id.hex(),
    ]
    stop = collector.named("runtime.v1.RuntimeService/StopContainer")
    assert attributes(stop)["rpc.response.status_code"] == "NotFound"
    assert stop.status.code == stop.status.STATUS_CODE_ERROR
    assert "no such container" in stop.status.message


async def test_without_a_tracer_the_runtime_gets_no_trace_context(serve: Serve, dial: Dial) -> None:
    notified = ReceivedMetadata()
    server = await serve(Version=notified.version)
    await dial(server.endpoint).version()
    assert "user-agent" in notified.metadata
    assert "traceparent" not in notified.metadata


async def test_requests_to_the_api() -> None:
    async with (
        collecting() as collector,
        serving(answer({"kind": "Pod"}), failure(404, "NotFound")) as server,
    ):
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        client = KubeClient(Connection(server.url, authorization="Bearer t0ken"), tracer=tracer)
        await client.get(PODS, "p", "n")
        with pytest.raises(NotFound):
            await client.apart(qps=0, burst=0).get(PODS, "q", "n")
        await client.close()
        await tracer.close()
    found, missing = collector.spans
    assert (found.name, missing.name) == ("HTTP GET", "HTTP GET")
    path = "/api/v1/namespaces/n/pods/p"
    assert attributes(found) == {
        "http.request.method": "GET",
        "url.full": server.url + path,
        "server.address": "127.0.0.1",
        "server.port": int(server.url.rpartition(":")[2]),
        "http.response.status_code": 200,
    }
    notified = {key.lower(): value for key, value in server.requested[0].headers.items()}
    assert notified["traceparent"].split("-")[2] == found.span_id.hex()
    assert missing.status.code == missing.status.STATUS_CODE_ERROR
    assert "t0ken" not in str(collector.spans)


async def test_a_request_ends_when_its_answer_was_read() -> None:
    tracer, rest = Recording(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"kind": ')
        await rest.wait()
        await response.write(b'"Pod"}')
        return response

    async with serving(slow, stream(lines({"type": "ADDED", "object": {}}))) as server:
        client = KubeClient(Connection(server.url), tracer=tracer)
        reading = asyncio.create_task(client.get(PODS, "p", "n"))
        await tracer.begun.wait()
        await tracer.spans[0].changed.wait()
        assert tracer.spans[0].attributes["http.response.status_code"] == 200
        assert not tracer.spans[0].ended
        rest.set()
        assert await reading == {"kind": "Pod"}
        assert tracer.spans[0].ended
        async with contextlib.aclosing(
            client.watch(PODS, resource_version="1", timeout_seconds=60)
        ) as watch:
            async for event in watch:
                if event.type == "ADDED":
                    assert not tracer.spans[1].ended
                    break
        assert tracer.spans[1].ended
        await client.close()


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        (Stage.SYNC, "syncPod"),
        (Stage.TERMINATING, "syncTerminatingPod"),
        (Stage.TERMINATED, "syncTerminatedPod"),
    ],
)
async def test_syncs_have_the_kubelets_names(stage: Stage, name: str) -> None:
    class Syncer(KubePodSyncer):
        async def sync(self, *_: Any, **__: Any) -> SyncOutcome:
            return SyncOutcome(error="volumes: no such secret")

        sync_pod = sync_terminating_pod = sync_terminated_pod = sync

    pod, cache = make_pod(), PodStatusCache()
    cache.set(runtime_status(pod.uid))
    async with collecting() as collector:
        tracer = OtlpTracer(collector.endpoint, ALL, "n1")
        unused: Any = None
        syncer = Syncer(
            (),
            unused,
            cache,
            read_pod=unused,
            kill_pod=unused,
            probes=unused,
            recorder=unused,
            clock=unused,
            updates=unused,
            traces=Traces(tracer),
        )
        await syncer.run(RunSync(pod.uid, stage, Work(UpdateType.UPDATE, pod)), lambda: False)
        await tracer.close()
    sync = collector.named(name)
    update = {"k8s.pod.update_type": "update"} if stage is Stage.SYNC else {}
    assert attributes(sync) == update | {
        "k8s.pod.uid": pod.uid,
        "k8s.pod": f"{pod.namespace}/{pod.name}",
        "k8s.pod.name": pod.name,
        "k8s.namespace.name": pod.namespace,
    }
    assert sync.status.message == "volumes: no such secret"
