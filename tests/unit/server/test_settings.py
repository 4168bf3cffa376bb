"""/allocatedPods: the pods of the node as they are run. Source: docs/reference/behaviour.md, t6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation.resources import requested_resources, with_resources
from kubeletpy.server.settings import AccessSettings, EndpointSettings
from tests.kit.server import Pki, Reviewer, make_view, serving
from tests.kit.traces import Recording

OPEN = AccessSettings(always_allow=True)
ON = EndpointSettings(allocated_pods=True)


def pod(name: str, cpu: str) -> Pod:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    found: Any = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"containers": [container]},
        "status": {"phase": "Running"},
    }
    return Pod(found)


def reported(name: str, cpu: str) -> dict[str, Any]:
    return {**pod(name, cpu).object, "status": {}}


async def test_specs_as_allocated_without_status(pki: Pki, tmp_path: Path) -> None:
    """``a`` has a resize that waits; ``removed`` no longer uses the node."""
    desired, other = pod("a", "2"), pod("b", "1")
    objects: list[Any] = [each.object for each in (desired, other, pod("gone", "1"))]
    allocated = with_resources(desired, requested_resources(pod("a", "1")))
    view = replace(make_view(tmp_path, *objects), allocated=lambda: [allocated, other])
    async with serving(view, None, pki, OPEN, endpoints=ON) as server:

        async def get(path: str) -> tuple[int, Any]:
            code, text = await server.request("GET", f"/allocatedPods{path}", client=pki.client)
            return code, json.loads(text) if code == 200 else text

        code, found = await get("")
        assert (code, found["kind"], found["apiVersion"]) == (200, "PodList", "v1")
        assert found["items"] == [reported("a", "1"), reported("b", "1")]
        assert await get("/ns/a") == (200, reported("a", "1"))
        assert await get("/ns/b/uid-b") == (200, reported("b", "1"))
        for missing in ("/ns/gone", "/other/a", "/ns/a/uid-b"):
            assert await get(missing) == (404, "pod not found")
        code, _ = await server.request("POST", "/allocatedPods", client=pki.client)
        assert code == 405


@pytest.mark.parametrize(
    ("endpoints", "debugging", "code"),
    [(ON, True, 200), (ON, False, 404), (EndpointSettings(), True, 404)],
)
async def test_without_gate_or_debugging_handlers_it_does_not_exist(
    pki: Pki, tmp_path: Path, endpoints: EndpointSettings, debugging: bool, code: int
) -> None:
    view = make_view(tmp_path)
    async with serving(view, None, pki, OPEN, endpoints=endpoints, debugging=debugging) as server:
        found, _ = await server.request("GET", "/allocatedPods", client=pki.client)
        assert found == code


# Stats of the node over HTTP: access and formats.

SHORT, WHOLE = '{"short":true}', '{"short":false}'


@pytest.mark.parametrize(
    ("path", "subresource", "text"),
    [
        ("/stats/summary", "stats", WHOLE),
        ("/stats/summary?only_cpu_and_memory=true", "stats", SHORT),
        ("/stats/summary?only_cpu_and_memory=1", "stats", WHOLE),
        ("/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true", "stats", WHOLE),
        ("/metrics/cadvisor", "metrics", "a_container_metric 1\n"),
        ("/metrics/resource", "metrics", "a_resource_metric 1\n"),
        ("/metrics/slis", "metrics", "a_health_metric 1\n"),
    ],
)
async def test_authorized_clients_get_stats(
    path: str, subresource: str, text: str, pki: Pki, tmp_path: Path
) -> None:
    api = Reviewer()
    api.allowed = {("alice", "get", subresource)}
    async with serving(make_view(tmp_path), api, pki) as server:
        assert await server.request("GET", path, client=pki.client) == (200, text)
        assert (await server.request("POST", path, client=pki.client))[0] in (403, 405)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (
            NoThread(),
            (503, "no thread can be made: too many processes or threads on this machine\n"),
        ),
        (OSError(24, "Too many open files", "/etc/secret"), (503, "Too many open files\n")),
        (FileNotFoundError(2, "No such file", "/etc/secret"), (500, "internal error\n")),
        (ValueError("secret"), (500, "internal error\n")),
    ],
    ids=["threads", "descriptors", "a file", "a bug"],
)
async def test_errors_name_exhausted_resources_of_the_machine_only(
    error: Exception, answer: tuple[int, str], pki: Pki, tmp_path: Path
) -> None:
    async def broken() -> str:
        raise error

    view: Any = make_view(tmp_path)
    view.stats.resource_metrics = broken
    access = AccessSettings(anonymous=True, always_allow=True)
    async with serving(view, None, pki, access) as server:
        assert await server.request("GET", "/metrics/resource") == answer


# Requests to the node's port as spans: names and attributes as in the kubelet, no secrets.

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


# /explain on the port of the node.

LINE = {"namespace": "ns", "name": "p", "verdict": "fine"}


@pytest.mark.parametrize(
    ("path", "status", "answer"),
    [
        ("/explain", 200, {"node": {"pressure": None}, "pods": [LINE]}),
        ("/explain/ns/p", 200, {"verdict": "fine"}),
        ("/explain/ns/q", 404, {"error": "no pod ns/q on this node"}),
    ],
)
async def test_explanations(path: str, status: int, answer: Any, pki: Pki, tmp_path: Path) -> None:
    api = Reviewer()
    api.allowed = {("alice", "get", "explain")}
    async with serving(make_view(tmp_path), api, pki) as server:
        found, body = await server.request("GET", path, client=pki.client)
        assert (found, json.loads(body)) == (status, answer)
