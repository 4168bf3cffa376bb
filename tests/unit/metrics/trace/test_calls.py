"""Calls to runtime and API as spans, and the trace context that they pass on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.metrics.trace.otlp import OtlpTracer
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.podworkers.records import RunSync, Stage, SyncOutcome, UpdateType, Work
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from tests.unit.kubeapi.api_server import answer, failure, lines, serving, stream
from tests.unit.metrics.trace.collector import attributes, collecting
from tests.unit.metrics.trace.recording import Recording
from tests.unit.podworkers.builders import make_pod, runtime_status
from tests.unit.remote.conftest import Dial, Serve, dial, serve, short_dir
from tests.unit.remote.fake_server import version

__all__ = ["dial", "serve", "short_dir"]
ALL = 1_000_000


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
