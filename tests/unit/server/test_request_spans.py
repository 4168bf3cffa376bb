"""Requests to the node's port as spans: names and attributes as in the kubelet, no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.server.settings import AccessSettings
from tests.unit.metrics.trace.recording import Recording
from tests.unit.server.helpers import Pki, Reviewer, make_view, serving

CONTAINER = "{podNamespace}/{podID}/{containerName}"


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("/pods", "/pods", 200),
        ("/metrics?secret=1", "/metrics", 200),
        ("//pods", "", 301),
        ("/nothing", "", 404),
        ("/containerLogs/ns/p/c?tailLines=1", f"/containerLogs/{CONTAINER}", 404),
    ],
)
async def test_an_admitted_request(
    path: str, name: str, status: int, pki: Pki, tmp_path: Path
) -> None:
    tracer, everyone = Recording(), AccessSettings(anonymous=True, always_allow=True)
    async with serving(make_view(tmp_path), Reviewer(), pki, everyone, tracer=tracer) as server:
        headers = {"User-Agent": "me/1", "traceparent": f"00-{1:032x}-{1:016x}-01"}
        await server.request("GET", path, client=pki.client, headers=headers)
    span = tracer.spans[0]
    supplied = dict(span.attributes)
    assert (span.name, span.kind, span.ended, span.error) == (name, "server", True, None)
    assert supplied.pop("network.peer.port")
    assert supplied == {
        "server.address": "kubelet",
        "server.port": server.port,
        "http.request.method": "GET",
        **({"http.route": name} if name else {}),
        "url.scheme": "https",
        "url.path": path.partition("?")[0],
        "network.peer.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "user_agent.original": "me/1",
        "client.address": "127.0.0.1",
        "http.response.status_code": status,
    }


async def test_an_unauthenticated_request_makes_no_span(pki: Pki, tmp_path: Path) -> None:
    tracer = Recording()
    async with serving(make_view(tmp_path), Reviewer(), pki, tracer=tracer) as server:
        status, _ = await server.request("GET", "/pods", token="wrong")
    assert (status, tracer.spans) == (401, [])
