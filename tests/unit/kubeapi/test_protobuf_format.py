"""The client with protobuf requested: requests, answers, watches and errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, message_name
from kubeletpy.base.wire.api_table import load_table
from kubeletpy.kubeapi import client, errors, protobuf_format, protocol
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protobuf_format import ProtobufFormat
from kubeletpy.kubeapi.protocol import LEASES, PODS, SERVICEACCOUNTS, PatchType, Resource
from kubeletpy.volumes.projected import trust_bundles
from kubeletpy.volumes.projected.pod_certificates import certificates as pod_certificates
from tests.kit.api import Handler, answer, lines, serving_client, stream
from tests.kit.messages import body, field

OBJECTS = ApiObjects(load_table())
FORMAT = ProtobufFormat(OBJECTS)
WATCH = f"{MEDIA_TYPE};stream=watch"
METADATA = field(1, field(1, "p"))
POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {}, "status": {}}
STATUS = field(2, "Failure") + field(3, "too old") + field(4, "Expired") + field(6, 410)
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l"},
    "spec": {"renewTime": "2026-11-23T15:00:00.654321Z"},
}


def frame(kind: str, obj: bytes) -> bytes:
    event = field(1, kind) + field(2, field(1, obj))
    return len(event).to_bytes(4, "big") + event


EVENTS = (
    frame("ADDED", body("v1", "Pod", METADATA))
    + frame("WEIRD", body("v1", "Pod", METADATA))
    + frame("BOOKMARK", body("v1", "Pod", field(1, field(6, "9"))))
    + frame("DELETED", body("v1", "Pod", METADATA))
)


def protobuf(data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, content_type=MEDIA_TYPE, headers=headers)

    return handler


def frames(*chunks: bytes) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": WATCH})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    return handler


async def followed(*chunks: bytes, kind: str = WATCH) -> list[tuple[str, Any]]:
    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [(each.type, each.object) async for each in FORMAT.events(kind, arriving())]


@pytest.mark.usefixtures("protocol")
async def test_a_client_speaks_protobuf() -> None:
    pods = body("v1", "PodList", field(1, field(2, "7")) + field(2, METADATA))
    status = protobuf(body("v1", "Status", field(3, "no") + field(4, "NotFound")), 404)
    pod = protobuf(body("v1", "Pod", METADATA))
    handlers = (pod, protobuf(pods), frames(EVENTS), status)
    async with serving_client(*handlers, form=FORMAT) as (server, api):
        assert await api.get(PODS, "p", "n") == POD
        listed = await api.limited(qps=0, burst=1).list(PODS)
        assert (listed["metadata"], listed["items"]) == (
            {"resourceVersion": "7"},
            [{"metadata": {"name": "p"}, "spec": {}, "status": {}}],
        )
        watch = api.watch(PODS, resource_version="1", timeout_seconds=9)
        events = [each.type async for each in watch]
        assert events == ["BOOKMARK", "ADDED", "BOOKMARK", "DELETED"]
        with pytest.raises(errors.NotFound, match="no") as raised:
            await api.get(PODS, "p", "n")
        assert raised.value.reason == "NotFound"
    drop = ";drop=metadata.managedFields"
    accept = f"application/vnd.kubernetes.protobuf{drop},application/json{drop}"
    assert [each.headers["Accept"] for each in server.requested] == [accept] * 4


@pytest.mark.usefixtures("protocol")
async def test_a_server_may_answer_json() -> None:
    async with serving_client(
        answer(POD), stream(lines({"type": "ADDED", "object": POD})), form=FORMAT
    ) as (_, api):
        assert await api.get(PODS, "p", "n") == POD
        watch = api.watch(PODS, resource_version="1", timeout_seconds=9)
        assert [each.object async for each in watch][-1] == POD


TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
NOVEL = {**LEASE, "spec": {"novel": 1}}
UNKNOWN = {"apiVersion": "x.io/v1", "kind": "Gadget"}


async def test_formats_of_sent_objects() -> None:
    sent: list[tuple[str, bytes]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        sent.append((request.content_type, await request.read()))
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = KubeClient(Connection("http://{}:{}".format(*runner.addresses[0]), None, ""), form=FORMAT)
    await api.create(LEASES, LEASE, "n")
    await api.update(LEASES, LEASE, "n")
    await api.create(SERVICEACCOUNTS, TOKEN, "n", subresource="token", name="default")
    await api.delete(PODS, "p", "n", grace_period_seconds=0, uid="u")
    await api.patch(LEASES, "l", {"spec": {"holderIdentity": "h"}}, "n")
    await api.patch(LEASES, "l", [{"op": "test"}], "n", patch_type=PatchType.JSON)
    await api.create(LEASES, NOVEL, "n")
    await api.create(Resource("x.io", "v1", "gadgets", True, "Gadget"), UNKNOWN, "n")
    await api.create(LEASES, {"metadata": {}}, "n")
    await api.close()
    await runner.cleanup()
    kinds = [kind.removeprefix("application/") for kind, _ in sent]
    pb = "vnd.kubernetes.protobuf"
    patches = ["strategic-merge-patch+json", "json-patch+json"]
    assert kinds == [pb, pb, pb, pb, *patches, "json", "json", "json"]
    assert OBJECTS.decode(sent[0][1]) == OBJECTS.decode(sent[1][1]) == LEASE
    assert OBJECTS.decode(sent[3][1]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }
    assert [json.loads(data) for _, data in sent[6:]] == [NOVEL, UNKNOWN, {"metadata": {}}]


def test_json_is_requested_for_kinds_absent_from_the_table() -> None:
    assert FORMAT.headers(Resource("x.io", "v1", "gadgets", True, "Gadget")) == {}
    assert FORMAT.headers(PODS)


def test_the_table_has_every_kind_that_the_agent_requests() -> None:
    requested = [each for each in vars(protocol).values() if isinstance(each, Resource)]
    requested += [*trust_bundles.VERSIONS, *pod_certificates.VERSIONS]
    missing = [
        each
        for each in requested
        if not OBJECTS.has_message(message_name(each.api_version, each.kind))
    ]
    assert (len(requested) >= 21, missing) == (True, [])


async def test_events_may_be_cut_anywhere() -> None:
    whole = await followed(EVENTS)
    assert [kind for kind, _ in whole] == ["ADDED", "BOOKMARK", "DELETED"]
    assert whole[0][1] == POD
    for at in range(len(EVENTS) + 1):
        assert await followed(EVENTS[:at], EVENTS[at:]) == whole
    assert await followed(*(EVENTS[at : at + 1] for at in range(len(EVENTS)))) == whole


@pytest.mark.parametrize(
    ("data", "stated"),
    [
        (EVENTS[:-1], "ended inside"),
        (EVENTS[:3], "ended inside"),
        (b"\0\0\0\0", "no event"),
        (b"\xff\xff\xff\xff", "larger than"),
        ((client.MAX_EVENT_BYTES + 1).to_bytes(4, "big"), "larger than"),
        (client.MAX_EVENT_BYTES.to_bytes(4, "big"), "ended inside"),
        (frame("ADDED", b""), "no event"),
        (frame("ADDED", b"{}"), "no event"),
        (frame("ADDED", body("v1", "Gadget", b"")), "no event"),
        (b"\0\0\0\2\x0b\x0b", "no event"),
        (frame("ADDED", body("v1", "Pod", field(1, 5))), "no event"),
    ],
)
async def test_frames_that_no_server_sends(data: bytes, stated: str) -> None:
    with pytest.raises(errors.Unavailable, match=stated):
        await followed(data)


async def test_an_error_event_is_raised() -> None:
    with pytest.raises(errors.Removed, match="too old") as raised:
        await followed(frame("ERROR", body("v1", "Status", STATUS)))
    assert (raised.value.code, raised.value.reason) == (410, "Expired")


async def test_an_error_contains_its_causes() -> None:
    cause = field(1, "Invalid") + field(2, "bad") + field(3, "spec.x")
    details = field(1, "p") + field(3, "pods") + field(4, cause) + field(5, 7)
    status = field(3, "no") + field(4, "Invalid") + field(5, details) + field(6, 422)
    async with serving_client(protobuf(body("v1", "Status", status), 422), form=FORMAT) as (_, api):
        with pytest.raises(errors.Invalid, match="no") as raised:
            await api.get(PODS, "p", "n")
    assert raised.value.details == {
        "name": "p",
        "kind": "pods",
        "causes": [{"reason": "Invalid", "message": "bad", "field": "spec.x"}],
        "retryAfterSeconds": 7,
    }
    assert raised.value.retry_after == 7


@pytest.mark.parametrize(
    ("status", "data"), [(200, b"\xff" * 9), (200, body("v1", "Gadget", b"")), (500, b"\xff" * 9)]
)
async def test_an_unreadable_answer(status: int, data: bytes) -> None:
    async with serving_client(protobuf(data, status), form=FORMAT) as (_, api):
        with pytest.raises(errors.Unavailable):
            await api.get(PODS, "p", "n")


@pytest.mark.parametrize(("more", "elsewhere"), [(-1, False), (0, True)])
async def test_large_answers_are_decoded_on_a_thread(
    more: int, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def note(data: bytes) -> dict[str, Any]:
        used.append(threading.current_thread() is not threading.main_thread())
        return {}

    objects = ApiObjects({})
    monkeypatch.setattr(objects, "decode", note)
    await ProtobufFormat(objects).decode(MEDIA_TYPE, bytes(protobuf_format.LARGE + more))
    assert used == [elsewhere]


async def test_a_large_list_does_not_block_the_loop() -> None:
    pods = body("v1", "PodList", field(2, METADATA + field(2, field(2, field(1, "c")) * 20)) * 2000)
    turns, over = 0, False

    async def turning() -> None:
        nonlocal turns
        while not over:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(turning())
    found = await FORMAT.decode(MEDIA_TYPE, pods)
    over = True
    await beside
    assert len(found["items"]) == 2000
    assert turns > 3
