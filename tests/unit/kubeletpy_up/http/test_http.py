"""The embedded API over real TLS on loopback: negotiation, bodies, streams, identities, stop."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.protocol import CONFIGMAPS
from kubeletpy.kubeapi.watch_state import INITIAL_EVENTS_END
from kubeletpy_up.api import Endpoint, LocalApi
from kubeletpy_up.http.server import check_loopback
from kubeletpy_up.pki import certificates
from kubeletpy_up.requests import ADMIN
from kubeletpy_up.storage.watch import Subscription
from tests.kit.clocks import SetClock
from tests.kit.embedded import Client, pod, serving

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    certificates.ensure(directory, "node-1")
    return directory


@pytest.mark.parametrize(
    "case",
    [
        ("GET", "/nowhere", None, {}, 404, "NotFound"),
        ("GET", "/api/v1/gadgets", None, {}, 404, "NotFound"),
        ("GET", "/apis/apps/v2/deployments", None, {}, 404, "NotFound"),
        ("GET", "/api/v1/pods/a", None, {}, 404, "NotFound"),
        ("GET", PODS + "/a/b/c/d", None, {}, 404, "NotFound"),
        ("GET", PODS + "/a/log", None, {}, 404, "NotFound"),
        ("GET", PODS + "/..%2f..%2fsecrets", None, {}, 404, "NotFound"),
        ("PUT", PODS, {}, {}, 405, "MethodNotAllowed"),
        ("POST", PODS + "/a", {}, {}, 405, "MethodNotAllowed"),
        ("DELETE", PODS + "/a/status", None, {}, 405, "MethodNotAllowed"),
        ("OPTIONS", PODS, None, {}, 405, "MethodNotAllowed"),
        ("POST", "/api", {}, {}, 405, "MethodNotAllowed"),
        ("POST", "/healthz", {}, {}, 405, "MethodNotAllowed"),
        (
            "GET",
            PODS,
            None,
            {"Accept": "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"},
            406,
            "NotAcceptable",
        ),
        ("POST", PODS, b"x", {"Content-Type": "text/plain"}, 415, "UnsupportedMediaType"),
        ("PATCH", PODS + "/a", {}, {}, 415, "UnsupportedMediaType"),
        ("POST", PODS, b"[" * 100_000, {}, 400, "BadRequest"),
        ("POST", PODS, b'{"metadata":{"name":"a","x":NaN}}', {}, 400, "BadRequest"),
        ("POST", PODS, b"\xff\xfe", {}, 400, "BadRequest"),
        ("POST", PODS, b"null", {}, 400, "BadRequest"),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps",
            b'{"metadata":{"name":"a"},"data":{"a":"\\ud800"}}',
            {},
            400,
            "BadRequest",
        ),
        ("POST", PODS, b"x" * (3 << 20) + b"xx", {}, 413, "RequestEntityTooLarge"),
        ("POST", PODS, b"a: *b", {"Content-Type": "application/yaml"}, 400, "BadRequest"),
        ("POST", PODS, b"a: [", {"Content-Type": "application/yaml"}, 400, "BadRequest"),
        ("GET", PODS + "?limit=x", None, {}, 400, "BadRequest"),
        ("GET", PODS + "?watch=1&timeoutSeconds=-1", None, {}, 400, "BadRequest"),
        ("GET", PODS + "?watch=1&resourceVersion=abc", None, {}, 400, "BadRequest"),
        ("DELETE", PODS + "/a?gracePeriodSeconds=x", None, {}, 400, "BadRequest"),
        ("DELETE", PODS + "/a?gracePeriodSeconds=1_0", None, {}, 400, "BadRequest"),
        ("DELETE", PODS + f"/a?gracePeriodSeconds={2**63}", None, {}, 400, "BadRequest"),
        ("DELETE", PODS + "/a", [1], {}, 400, "BadRequest"),
        ("GET", PODS, None, {"Impersonate-User": "root"}, 403, "Forbidden"),
        ("GET", PODS, None, {"Authorization": "Bearer wrong"}, 401, "Unauthorized"),
        ("GET", PODS, None, {"Authorization": "Basic YTpi"}, 401, "Unauthorized"),
        ("GET", "/openapi/v2", None, {"Authorization": ""}, 401, "Unauthorized"),
    ],
)
async def test_whatever_goes_wrong_is_a_status(
    api: tuple[LocalApi, Client, Client], case: tuple[str, str, Any, dict[str, str], int, str]
) -> None:
    _, admin, _ = api
    method, path, body, headers, code, reason = case
    sent = {name.replace("-", "_"): value for name, value in headers.items()}
    status, answer, _ = await admin.ask(method, path, body, **sent)
    assert (status, answer["kind"], answer["reason"]) == (code, "Status", reason), answer
    assert answer["code"] == code


@pytest.fixture
async def api(tmp_path: Path, pki: Path) -> AsyncIterator[tuple[LocalApi, Client, Client]]:
    async with serving(tmp_path, pki) as started:
        yield started


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
async def test_health_needs_no_credentials_but_refuses_wrong_ones(api: Any, path: str) -> None:
    _, admin, _ = api
    for others in ("", "Basic abc"):
        assert (await admin.ask("GET", path, Authorization=others))[0] == 200
    status, answer, _ = await admin.ask("GET", path, Authorization="Bearer wrong")
    assert (status, answer["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/readyz", "ok"),
        ("/readyz?verbose", "[+]ping ok\nreadyz check passed\n"),
        ("/livez?verbose&exclude=ping", "[+]ping excluded: ok\nlivez check passed\n"),
        (
            "/healthz?verbose&exclude=x",
            "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "
            '"x"\nhealthz check passed\n',
        ),
    ],
)
async def test_health_in_the_words_of_kube_apiserver(api: Any, path: str, text: str) -> None:
    _, admin, _ = api
    assert (await admin.ask("GET", path))[:2] == (200, text)


@pytest.mark.parametrize(
    ("path", "end"),
    [(PODS, b"}\n"), (PODS + "/none", b"}\n"), ("/apis", b"}\n"), ("/version", b'"\n}')],
)
async def test_an_object_is_a_line(api: Any, path: str, end: bytes) -> None:
    _, admin, _ = api
    async with admin.session.get(admin.url + path) as response:
        assert (await response.read()).endswith(end)


async def test_discovery_in_both_forms(api: Any) -> None:
    _, admin, _ = api
    assert (await admin.ask("GET", "/api"))[1]["versions"] == ["v1"]
    assert (await admin.ask("GET", "/apis/node.k8s.io/v1"))[1]["kind"] == "APIResourceList"
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    status, found, headers = await admin.ask("GET", "/apis", Accept=accept)
    assert (status, found["kind"]) == (200, "APIGroupDiscoveryList")
    assert "as=APIGroupDiscoveryList" in headers["Content-Type"]
    index = (await admin.ask("GET", "/openapi/v3"))[1]
    url = index["paths"]["api/v1"]["serverRelativeURL"]
    assert (await admin.ask("GET", url))[1]["openapi"].startswith("3.")


async def test_large_answers_are_compressed_on_request(api: Any) -> None:
    _, admin, _ = api
    headers = (await admin.ask("GET", "/openapi/v2", Accept_Encoding="gzip"))[2]
    assert headers["Content-Encoding"] == "gzip"
    headers = (await admin.ask("GET", "/openapi/v2", Accept_Encoding="identity"))[2]
    assert "Content-Encoding" not in headers


async def test_warnings_travel_in_headers_safely(api: Any) -> None:
    _, admin, _ = api
    odd = {**pod("a"), 'ha"\r\nX-Evil: ü': 1}
    status, _, headers = await admin.ask("POST", PODS, odd)
    assert status == 201
    assert headers["Warning"].startswith('299 - "unknown field')
    assert "X-Evil" not in headers
    status, _, _ = await admin.ask("POST", PODS + "?fieldValidation=Strict", odd)
    assert status == 400


async def test_yaml_and_protobuf_bodies(api: Any) -> None:
    _, admin, _ = api
    path = "/api/v1/namespaces/default/configmaps"
    text = b"metadata: {name: a}\ndata: {day: 2020-01-01}\n"
    status, made, _ = await admin.ask("POST", path, text, Content_Type="application/yaml")
    assert (status, made["data"]) == (201, {"day": "2020-01-01"})
    meta = b"\x0a\x01b"
    raw = b"\x0a" + bytes([len(meta)]) + meta
    about = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\0\x0a" + bytes([len(about)]) + about + b"\x12" + bytes([len(raw)]) + raw
    kind = "application/vnd.kubernetes.protobuf"
    status, made, _ = await admin.ask("POST", path, body, Content_Type=kind)
    assert (status, made["metadata"]["name"]) == (201, "b")


async def _next(stream: aiohttp.StreamReader) -> Any:
    async with asyncio.timeout(10):
        line = await stream.readline()
    return json.loads(line) if line else None


async def test_a_watch_streams_and_ends_with_the_server(tmp_path: Path, pki: Path) -> None:
    async with serving(tmp_path, pki) as (server, admin, _):
        response = await admin.session.get(admin.url + PODS + "?watch=true")
        assert response.content_type == "application/json"
        await admin.ask("POST", PODS, pod("a", schedulerName="none"))
        event = await _next(response.content)
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Pod")
        await server.stop()
        assert await _next(response.content) is None, "an aborted one has no end"


async def test_a_watcher_that_disconnects_is_dropped(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, admin, _ = api
    watchers = server.registry.watchers
    forgotten = asyncio.Event()
    discard = watchers.discard

    def noting(removed: Any) -> None:
        discard(removed)
        forgotten.set()

    monkeypatch.setattr(Subscription, "close", noting)
    version = server.registry.store.revision
    url = f"{admin.url}{PODS}?watch=true&resourceVersion={version}"
    response = await admin.session.get(url)
    assert len(watchers) == 1, "the headers come when the watch has begun"
    response.close()
    async with asyncio.timeout(10):
        await forgotten.wait()
    assert len(watchers) == 0


async def test_the_administrator_has_a_client_certificate_too(tmp_path: Path, pki: Path) -> None:
    """Clients that use no tokens read it from the kubeconfig."""
    async with serving(tmp_path, pki) as (local, admin, _):
        user = json.loads((tmp_path / "admin.kubeconfig").read_text())["users"][0]["user"]
        pair = KeyPair.named(tmp_path, "copied")
        pair.store(
            *(base64.b64decode(user[f"client-{each}-data"]) for each in ("certificate", "key"))
        )
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pair.certificate, pair.key)
        async with aiohttp.request("GET", admin.url + PODS, ssl=context) as response:
            assert response.status == 200
        assert local.registry.store.revision


async def test_objects_and_tokens_survive_a_restart(tmp_path: Path, pki: Path) -> None:
    async with serving(tmp_path, pki) as (_, admin, _):
        made = (await admin.ask("POST", PODS, pod("a", schedulerName="none")))[1]
    token = json.loads((tmp_path / "admin.kubeconfig").read_text())["users"]
    async with serving(tmp_path, pki) as (_, admin, _):
        assert json.loads((tmp_path / "admin.kubeconfig").read_text())["users"] == token
        assert (await admin.ask("GET", PODS + "/a"))[1] == made


def _open_to_others(directory: Path) -> list[Path]:
    return [p for p in directory.iterdir() if p.is_file() and p.stat().st_mode & 0o077]


async def test_what_it_writes_is_private(tmp_path: Path, pki: Path) -> None:
    async with serving(tmp_path, pki):
        assert _open_to_others(tmp_path) + _open_to_others(pki) == []


async def test_a_broken_handler_is_a_500_without_a_traceback(
    tmp_path: Path, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, pki) as (server, admin, _):
        server.registry.get = None  # type: ignore[method-assign, assignment]
        status, answer, _ = await admin.ask("GET", PODS + "/a")
        assert (status, answer["reason"]) == (500, "InternalError")
        assert "Traceback" not in str(answer)
        assert server.registry.list(ADMIN, "pods")["items"] == []
    assert "A request failed with an internal error" in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "example.com"])
def test_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        check_loopback(host)


def test_a_name_that_can_not_stand_in_a_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(certificates.CertificateError, match="node,1"):
        certificates.ensure(tmp_path / "pki", "node,1")


def test_certificates_of_another_node_are_replaced(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, "node-1").node.certificate.read_text()
    second = certificates.ensure(tmp_path, "node-2").node.certificate
    assert second.read_text() != first
    assert x509.read_certificate(second.read_bytes()).names.dns_names == ("node-2", "localhost")


def test_certificates_are_created_once_and_again_when_corrupt(tmp_path: Path) -> None:
    first = certificates.ensure(tmp_path, "node-1")
    pem = first.certificate.read_text()
    assert certificates.ensure(tmp_path, "node-1").certificate.read_text() == pem
    first.certificate.write_text("spoilt")
    assert certificates.ensure(tmp_path, "node-1").certificate.read_text() not in (pem, "spoilt")


NOW, YEAR = 1_800_000_000.0, 365 * 24 * 3600.0


def of_pki(made: certificates.Certificates) -> list[bytes]:
    """The authority's certificate, then those of server, client and node."""
    files = made.ca, made.certificate, made.client.certificate, made.node.certificate
    return [file.read_bytes() for file in files]


@pytest.mark.parametrize(("years", "kept"), [(0.5, True), (9.5, False), (11, False)])
def test_an_authority_and_its_certificates_are_made_anew_in_time(
    tmp_path: Path, years: float, kept: bool
) -> None:
    first = of_pki(certificates.ensure(tmp_path, "node-1", NOW))
    later = NOW + years * YEAR
    made = certificates.ensure(tmp_path, "node-1", later)
    assert [one == other for one, other in zip(first, of_pki(made), strict=True)] == [kept] * 4
    leaves = made.certificate, made.client.certificate, made.node.certificate
    assert x509.verifies(made.ca, *leaves, now=later)


async def test_a_running_api_serves_with_a_new_authority_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy_up.api._RENEW_SECONDS", 0.01)
    clock = SetClock(time.time())
    local = LocalApi(tmp_path, "n1", port=0, clock=clock)
    endpoint = await local.start()
    try:
        old = (tmp_path / "pki" / "ca.crt").read_bytes()
        # this machine's clock is not set ahead, and checks the new certificates
        monkeypatch.setattr(x509, "_life", lambda now: (time.time() - 60, now + 10 * YEAR))
        replaced, replace = asyncio.Event(), local.registry.replace_root_ca

        def replace_root_ca(root_ca: str) -> None:
            replace(root_ca)
            replaced.set()

        monkeypatch.setattr(local.registry, "replace_root_ca", replace_root_ca)
        clock.time += 9.5 * YEAR
        await asyncio.wait_for(replaced.wait(), 30)
        client = await KubeClient.from_kubeconfig(str(endpoint.admin_kubeconfig))
        try:
            found = await client.get(CONFIGMAPS, "kube-root-ca.crt", "kube-system")
        finally:
            await client.close()
        assert found["data"]["ca.crt"].encode() == _authority(endpoint) != old
    finally:
        await local.stop()


async def test_a_stop_waits_for_certificates_that_are_being_renewed(
    tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, began, proceed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    renewed = []

    def renew(*_: object) -> None:
        loop.call_soon_threadsafe(began.set)
        assert proceed.wait(20)
        renewed.append(1)

    monkeypatch.setattr("kubeletpy_up.api._RENEW_SECONDS", 0.0)
    async with serving(tmp_path, pki) as (api, _, _):
        monkeypatch.setattr(certificates, "ensure", renew)
        await asyncio.wait_for(began.wait(), 20)
        loop.call_later(0.05, proceed.set)
        await asyncio.wait_for(api.stop(), 20)
        assert renewed


def _authority(endpoint: Endpoint) -> bytes:
    """The authority's certificate in the node's kubeconfig."""
    config = json.loads(endpoint.node_kubeconfig.read_text())
    return base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])


@pytest.mark.parametrize("name", ["ca", "server", "kubelet-client", "kubelet-server", "admin"])
def test_a_key_of_another_certificate_is_noticed(tmp_path: Path, name: str) -> None:
    certificates.ensure(tmp_path, "node-1", NOW)
    (tmp_path / f"{name}.key").write_bytes(x509.new_key())
    made = certificates.ensure(tmp_path, "node-1", NOW)
    server = KeyPair(made.certificate, made.key)
    pairs = made.authority, made.client, made.node, made.admin, server
    assert all(pair.loads() for pair in pairs)
    assert x509.verifies(made.ca, *(pair.certificate for pair in pairs[1:]), now=NOW)


def test_certificates_from_before_the_clock_was_set_last(tmp_path: Path) -> None:
    first = of_pki(certificates.ensure(tmp_path, "node-1", 60.0))
    assert of_pki(certificates.ensure(tmp_path, "node-1", NOW)) == first


async def test_a_watch_that_begins_with_a_list_is_compressed_flush_by_flush(
    tmp_path: Path, pki: Path
) -> None:
    """kube-apiserver 1.37 does this if the client accepts gzip; other watches stay uncompressed."""
    watch = f"{MAPS}?watch=true&allowWatchBookmarks=true"
    listing = f"{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    body = {"metadata": {"name": "late"}}
    async with serving(tmp_path, pki, compress_watches=True) as (local, admin, _):
        for url, encoding, compressed in (
            (listing, "gzip", True),
            (listing, "identity", False),
            (f"{watch}&resourceVersion={local.registry.store.revision}", "gzip", False),
        ):
            response = await admin.session.get(
                admin.url + url, headers={"Accept-Encoding": encoding}
            )
            assert ("Content-Encoding" in response.headers) == compressed
            response.close()
        api = await KubeClient.from_kubeconfig(str(tmp_path / "admin.kubeconfig"))
        events = api.watch(
            CONFIGMAPS, "default", resource_version="", timeout_seconds=60, send_initial_events=True
        )
        async with asyncio.timeout(30), aclosing(cast("Any", events)) as stream:
            async for event in stream:
                name = event.object["metadata"].get("name")
                if INITIAL_EVENTS_END in (event.object["metadata"].get("annotations") or {}):
                    await admin.ask("POST", MAPS, body)
                if name == "late":
                    break
        await api.close()
