"""The real client against a scripted server on loopback."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
from aiohttp import web

from kubeletpy.base.version import VERSION
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.client import CONCURRENT_REQUESTS, KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCESLICES,
    SERVICEACCOUNTS,
    KubeApi,
    PatchType,
    WatchEvent,
)
from tests.kit.api import answer, failure, lines, never, raw, serving, serving_client, stream
from tests.kit.messages import member, opened

pytestmark = pytest.mark.usefixtures("protocol")

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "resourceVersion": "5"}}


EVENT = lines({"type": "ADDED", "object": POD})


async def test_the_client_is_a_kube_api() -> None:
    async with serving_client(answer(POD)) as (server, api):
        assert await api.get(PODS, "p", "n") == POD
        (requested,) = server.requested
        assert (requested.method, requested.path) == ("GET", "/api/v1/namespaces/n/pods/p")
        assert requested.headers["Authorization"] == "Bearer t0ken"
        assert requested.headers["Accept"] == "application/json;drop=metadata.managedFields"
        assert requested.headers["User-Agent"].startswith(f"kubeletpy/{VERSION} (linux/")


async def test_null_fields_are_absent_in_answers_and_events() -> None:
    """A real API server writes null where a type has no omitempty."""
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    pod = {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}
    desired = {
        "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    async with serving_client(answer(pod), stream(lines({"type": "ADDED", "object": pod}))) as (
        _,
        api,
    ):
        assert await api.get(PODS, "p", "n") == desired
        events = [event async for event in api.watch(PODS, resource_version="1", timeout_seconds=9)]
        assert events[-1] == WatchEvent("ADDED", desired)


async def test_requests_of_each_verb() -> None:
    async with serving_client(answer({})) as (server, api):
        await api.list(PODS, field_selector="spec.nodeName=a b", limit=5, continue_="c+/=")
        await api.list(LEASES, "kube-node-lease", label_selector="x", resource_version="0")
        await api.create(EVENTS, {"a": "ä"}, "n")
        await api.create(SERVICEACCOUNTS, {}, "n", subresource="token", name="default")
        await api.update(NODES, {"metadata": {"name": "m"}}, subresource="status")
        await api.patch(PODS, "p", {"s": 1}, "n", subresource="status")
        await api.patch(PODS, "p", [{"op": "test"}], "n", patch_type=PatchType.JSON)
        await api.patch(NODES, "m", {}, patch_type=PatchType.APPLY)
        await api.delete(PODS, "p", "n", grace_period_seconds=0, uid="u")
        await api.delete(PODS, "p", "n")
        await api.delete_collection(RESOURCESLICES, field_selector="spec.nodeName=m")
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    desired = [
        ("GET", "/api/v1/pods", {"fieldSelector": "spec.nodeName=a b", "limit": "5",
                                 "continue": "c+/="}, None),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
         {"labelSelector": "x", "resourceVersion": "0"}, None),
        ("POST", "/api/v1/namespaces/n/events", {}, {"a": "ä"}),
        ("POST", "/api/v1/namespaces/n/serviceaccounts/default/token", {}, {}),
        ("PUT", "/api/v1/nodes/m/status", {}, {"metadata": {"name": "m"}}),
        ("PATCH", "/api/v1/namespaces/n/pods/p/status", {}, {"s": 1}),
        ("PATCH", "/api/v1/namespaces/n/pods/p", {}, [{"op": "test"}]),
        ("PATCH", "/api/v1/nodes/m", {"fieldManager": "kubelet", "force": "true"}, {}),
        ("DELETE", "/api/v1/namespaces/n/pods/p", {},
         {**options, "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}),
        ("DELETE", "/api/v1/namespaces/n/pods/p", {}, options),
        ("DELETE", "/apis/resource.k8s.io/v1/resourceslices",
         {"fieldSelector": "spec.nodeName=m"}, None),
    ]  # fmt: skip
    assert [(a.method, a.path, a.query, a.body) for a in server.requested] == desired
    types = [requested.headers.get("Content-Type", "") for requested in server.requested]
    assert types[5:8] == [
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ]


@pytest.mark.parametrize(
    ("handler", "kind", "code"),
    [
        (failure(400, "BadRequest"), errors.BadRequest, 400),
        (failure(401, "Unauthorized"), errors.Unauthorized, 401),
        (failure(403, "Forbidden"), errors.Forbidden, 403),
        (failure(404, "NotFound"), errors.NotFound, 404),
        (failure(409, "AlreadyExists"), errors.AlreadyExists, 409),
        (failure(409, "Conflict"), errors.Conflict, 409),
        (failure(410, "Expired"), errors.Removed, 410),
        (failure(415, "UnsupportedMediaType"), errors.ApiError, 415),
        (failure(422, "Invalid"), errors.Invalid, 422),
        (failure(429, "TooManyRequests"), errors.TooManyRequests, 429),
        (failure(500, "InternalError"), errors.Unavailable, 500),
        (raw("<html>bad gateway</html>", 502), errors.Unavailable, 502),
        (raw("null", 404), errors.NotFound, 404),
        (raw('{"code": "x", "message": 5, "details": []}', 403), errors.Forbidden, 403),
        (raw("not json"), errors.Unavailable, 0),
        (raw("[]"), errors.Unavailable, 0),
        (raw("[" * 100000), errors.Unavailable, 0),
        (answer({}, 302, {"Location": "http://127.0.0.1:1/"}), errors.ApiError, 302),
    ],
)
async def test_errors_are_types(handler: Any, kind: type[Exception], code: int) -> None:
    async with serving_client(handler) as (_, api):
        with pytest.raises(errors.ApiError) as caught:
            await api.get(PODS, "p", "n")
        assert type(caught.value) is kind
        assert caught.value.code == code
        assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_a_name_cannot_reach_another_path(name: str) -> None:
    async with serving_client(answer(POD)) as (server, api):
        with pytest.raises(errors.BadRequest):
            await api.get(PODS, name, "n")
        with pytest.raises(errors.BadRequest):
            await api.get(PODS, "p", name)
        with pytest.raises(errors.BadRequest):
            await api.get(PODS, "p")
        assert not server.requested


async def test_refused_connections_and_timeouts_are_unavailable() -> None:
    nobody = KubeClient(Connection("http://127.0.0.1:1"))
    with pytest.raises(errors.Unavailable, match=r"GET http://127\.0\.0\.1:1/api/v1/nodes/m: "):
        await nobody.get(NODES, "m")
    await nobody.close()
    async with serving_client(never(), timeout=0.05) as (_, api):
        with pytest.raises(errors.Unavailable):
            await api.get(NODES, "m")
        await api.close()
        with pytest.raises(errors.Unavailable, match="closed"):
            await api.get(NODES, "m")


async def test_retry_after_is_honoured_and_bounded() -> None:
    busy = failure(429, "TooManyRequests", headers={"Retry-After": "0"})
    async with serving_client(busy, busy, answer(POD)) as (server, api):
        assert await api.get(PODS, "p", "n") == POD
        server.answers[:] = [busy]
        server.requested.clear()
        with pytest.raises(errors.TooManyRequests) as caught:
            await api.get(PODS, "p", "n")
        assert caught.value.retry_after == 0
        assert len(server.requested) == 4


async def test_refused_credentials_are_renewed_once() -> None:
    made = []
    async with serving(failure(401, "Unauthorized"), answer(POD)) as server:

        async def reconnect() -> Connection:
            made.append(1)
            return Connection(server.url, server.trust, "Bearer fresh")

        api = KubeClient(Connection(server.url, server.trust, "Bearer t0ken"), reconnect=reconnect)
        assert await api.get(PODS, "p", "n") == POD
        assert [requested.headers["Authorization"] for requested in server.requested] == [
            "Bearer t0ken",
            "Bearer fresh",
        ]
        server.answers[:] = [failure(401, "Unauthorized")]
        with pytest.raises(errors.Unauthorized):
            await api.get(PODS, "p", "n")
        assert len(made) == 1
        await api.close()


async def test_watch_events_in_pieces_of_any_size() -> None:
    events: list[dict[str, Any]] = [
        {"type": "ADDED", "object": {"metadata": {"name": f"p{i}"}}} for i in range(50)
    ]
    text = lines(*events) + b"\n" + lines({"type": "NONSENSE", "object": {}})
    chunks = [text[at : at + 37] for at in range(0, len(text), 37)]
    async with serving_client(stream(*chunks)) as (server, api):
        watch = api.watch(PODS, resource_version="7", timeout_seconds=5, field_selector="a=b")
        seen = [event async for event in watch]
        first = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
        assert seen == [first, *(WatchEvent(e["type"], e["object"]) for e in events)]
        assert server.requested[0].query == {
            "watch": "true",
            "fieldSelector": "a=b",
            "resourceVersion": "7",
            "timeoutSeconds": "5",
            "allowWatchBookmarks": "true",
        }


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (stream(lines({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})),
         errors.Removed),
        (failure(410, "Expired"), errors.Removed),
        (stream(b"not json\n"), errors.Unavailable),
        (stream(b"[]\n"), errors.Unavailable),
        (stream(b'{"type": "ADDED", "obj'), errors.Unavailable),
    ],
)  # fmt: skip
async def test_watch_errors(handler: Any, kind: type[Exception]) -> None:
    async with serving_client(handler) as (_, api):
        with pytest.raises(kind):
            async for event in api.watch(PODS, resource_version="7", timeout_seconds=5):
                assert event.type == "BOOKMARK"


async def test_a_compressed_watch_is_a_gzip_member_for_each_flush() -> None:
    """kube-apiserver 1.37 compresses like this. A flushed event is read before its member ends."""
    read: asyncio.Queue[str] = asyncio.Queue()
    ends: asyncio.Queue[None] = asyncio.Queue()

    async def watched(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Encoding": "gzip"})
        await response.prepare(request)
        for name in ("a", "b", "c"):
            data, end = opened(lines({"type": "ADDED", "object": {"metadata": {"name": name}}}))
            await response.write(data)
            await ends.get()
            await response.write(end)
        return response

    async def reading(api: KubeApi) -> None:
        async for event in api.watch(PODS, resource_version="1", timeout_seconds=9):
            read.put_nowait(event.object["metadata"].get("name", "begun"))

    async with serving_client(watched) as (_, api):
        task = asyncio.ensure_future(reading(api))
        for name in ("begun", "a", "b", "c"):
            assert await asyncio.wait_for(read.get(), 30) == name
            if name != "begun":
                ends.put_nowait(None)
        await asyncio.wait_for(task, 30)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (member(EVENT) + opened(EVENT)[0], "ends before its gzip"),
        (member(EVENT) + b"trailing garbage", "no gzip after its member 1"),
        (member(EVENT) + member(b"") * 10_000, "contain nothing"),
        (member(EVENT) + member(b"\n" * 1_000_000), "no event"),
        (member(EVENT) + gzip.compress(bytes(64 << 20)), "event is larger than"),
    ],
    ids=["truncated", "garbage", "empty members", "blank lines", "bomb"],
)
async def test_a_compressed_watch_that_is_broken_ends_with_the_reason(
    body: bytes, error: str
) -> None:
    async def watched(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with serving_client(watched) as (_, api):
        names = []
        with pytest.raises(errors.Unavailable, match=f"watch of pods: .*{error}|{error}"):
            async for event in api.watch(PODS, resource_version="1", timeout_seconds=9):
                names.append(event.type)
        assert names[:2] == ["BOOKMARK", "ADDED"]


async def test_limited_clients_share_connections() -> None:
    async with serving_client(answer({})) as (_, api):
        heartbeat = api.limited(qps=0, burst=0, timeout=60)
        await asyncio.gather(api.list(PODS), heartbeat.get(NODES, "m"))
        await api.close()
        with pytest.raises(errors.Unavailable):
            await heartbeat.get(NODES, "m")


async def test_a_burst_opens_few_connections() -> None:
    under_way, most = 0, 0

    async def slow(_request: web.Request) -> web.StreamResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return web.json_response({})

    async with serving_client(slow, qps=0) as (_, api):
        heartbeats = api.limited(qps=0, burst=0)
        burst = [asyncio.create_task(api.get(PODS, f"p{n}", "n")) for n in range(40)]
        await asyncio.sleep(0)
        await heartbeats.get(NODES, "m")
        beaten = sum(task.done() for task in burst)
        await asyncio.gather(*burst)
    assert CONCURRENT_REQUESTS <= most <= CONCURRENT_REQUESTS + 1
    assert beaten < 30, "another client of the same connections does not wait behind a burst"
