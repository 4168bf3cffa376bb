"""Requests are counted by the first part of their route."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.structs import replace
from kubeletpy.config import NodeFlags, default_settings, load, parse_flags
from kubeletpy.metrics.registry import Metrics
from kubeletpy.server.build import KubeletServer, Ports
from kubeletpy.server.routes import (
    ROUTES,
    VERBS,
    Identity,
    Route,
    ServerError,
    canonical,
    identity_from_certificate,
    identity_from_review,
)
from kubeletpy.server.settings import AccessSettings, ServerSettings
from kubeletpy.server.tls import openssl_names
from tests.kit.server import PROGRAM, Pki, Reviewer, Running, make_view, serving
from tools.env.ports import free_port
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("healthz", "healthz"),
        ("exec", "exec"),
        ("port_forward", "portForward"),
        ("stats_summary", "stats"),
        ("pprof", "debug"),
        ("metrics", "metrics"),
        ("cadvisor_metrics", "metrics/cadvisor"),
        ("resource_metrics", "metrics/resource"),
    ],
)
def test_folders(name: str, folder: str) -> None:
    assert next(route.folder for route in ROUTES if route.name == name) == folder


# Every route requires an authenticated and authorized client.

PATHS = [(route, path) for route in ROUTES for path in route.paths]
IDS = [path for _, path in PATHS]


def concrete(path: str) -> str:
    for name in ("namespace", "pod", "uid", "container", "check"):
        path = path.replace(f"{{{name}}}", name)
    return path.replace("{path:.*}", "some.log").replace("{profile:.*}", "cmdline")


@pytest.mark.parametrize(("route", "path"), PATHS, ids=IDS)
async def test_each_route_requires_identity_and_permission(
    route: Route, path: str, pki: Pki, tmp_path: Path
) -> None:
    api = Reviewer()
    api.tokens["good"] = {"username": "bob", "groups": ["g"]}
    async with serving(make_view(tmp_path), api, pki) as server:
        for method in (*VERBS, "OPTIONS"):
            where = (method, concrete(path))
            assert await server.request(*where) == (401, "Unauthorized")
            assert await server.request(*where, token="bad") == (401, "Unauthorized")
            assert (await server.request(*where, token="good"))[0] == 403
            status, text = await server.request(*where, client=pki.client)
            assert status == 403, "a certificate alone allows nothing"
            verb = VERBS.get(method, "")
            # a 405 has no route: it is authorized like an unknown path
            served = route.any_method or method in route.methods
            requested = route.subresources if served else ("proxy",)
            listed = " ".join(requested)
            assert text == (
                f"Forbidden (user=alice, verb={verb}, resource=nodes, subresource(s)=[{listed}])"
            )
            with pytest.raises(aiohttp.ClientError):
                await server.request(*where, client=pki.stranger)


@pytest.mark.parametrize(("route", "path"), PATHS, ids=IDS)
async def test_any_one_of_the_subresources_is_enough(
    route: Route, path: str, pki: Pki, tmp_path: Path
) -> None:
    for subresource in route.subresources:
        api = Reviewer()
        api.allowed = {("alice", VERBS[route.methods[0]], subresource)}
        async with serving(make_view(tmp_path), api, pki) as server:
            status, _ = await server.request(route.methods[0], concrete(path), client=pki.client)
            assert status not in (401, 403)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics/../pods",
        "/metrics/%2e%2e/pods",
        "/metrics%2f..%2fpods",
        "//pods",
        "/pods/x",
        "/PODS",
        "/metrics/../exec/a/b/c",
        "/nothing",
        "/",
    ],
)
async def test_no_spelling_of_a_path_gives_more(path: str, pki: Pki, tmp_path: Path) -> None:
    api = Reviewer()
    api.allowed = {("alice", "get", "metrics")}
    async with serving(make_view(tmp_path), api, pki) as server:
        status, text = await raw(server, pki, path)
        assert status == 403, text


async def raw(server: Running, pki: Pki, path: str) -> tuple[int, str]:
    """A request with a raw path that no client library has normalized."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=pki.context(pki.client)
    )
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer


async def test_reviews_are_cached_and_requested_once(pki: Pki, tmp_path: Path) -> None:
    api = Reviewer()
    api.tokens["good"] = {"username": "bob"}
    api.allowed = {("bob", "get", "metrics")}
    async with serving(make_view(tmp_path), api, pki) as server:
        for _ in range(2):
            answers = [server.request("GET", "/metrics", token="good") for _ in range(5)]
            assert await asyncio.gather(*answers) == [(200, "a_metric 1\n")] * 5
    kinds = [review["kind"] for review in api.requested]
    assert kinds == ["TokenReview", "SubjectAccessReview"]


async def test_without_an_answer_of_the_api_every_client_is_refused(
    pki: Pki, tmp_path: Path
) -> None:
    api = Reviewer()
    api.down = True
    async with serving(make_view(tmp_path), api, pki) as server:
        assert await server.request("GET", "/pods", token="good") == (401, "Unauthorized")
        status, text = await server.request("GET", "/pods", client=pki.client)
        assert (status, text.startswith("Authorization error")) == (500, True)
        api.down = False
        api.tokens["good"] = {"username": "bob"}
        api.allowed = {("bob", "get", "pods"), ("alice", "get", "proxy")}
        assert (await server.request("GET", "/pods", token="good"))[0] == 200
        assert (await server.request("GET", "/pods", client=pki.client))[0] == 200
    async with serving(make_view(tmp_path), None, pki) as server:
        assert (await server.request("GET", "/pods", token="good"))[0] == 401
        assert (await server.request("GET", "/pods", client=pki.client))[0] == 500


async def test_anonymous_only_when_enabled_and_not_with_a_wrong_token(
    pki: Pki, tmp_path: Path
) -> None:
    api = Reviewer()
    api.allowed = {("system:anonymous", "get", "healthz")}
    access = AccessSettings(anonymous=True)
    async with serving(make_view(tmp_path), api, pki, access) as server:
        assert await server.request("GET", "/healthz") == (200, "ok")
        assert (await server.request("GET", "/pods"))[0] == 403
        assert (await server.request("GET", "/healthz", token="wrong"))[0] == 401


async def test_objects(pki: Pki, tmp_path: Path) -> None:
    pod = {
        "metadata": {"name": "a", "namespace": "b", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]},
    }
    async with serving(
        make_view(tmp_path, pod), None, pki, AccessSettings(always_allow=True)
    ) as server:
        assert '"name":"a"' in (await server.request("GET", "/pods", client=pki.client))[1]
        running = await server.request("GET", "/runningpods/", client=pki.client)
        assert '"items":[]' in running[1]
        config = await server.request("GET", "/configz", client=pki.client)
        assert config == (200, '{"kubeletconfig":{"kind":"KubeletConfiguration"}}')
        assert (await server.request("GET", "/healthz/ping", client=pki.client)) == (200, "ok")
        assert (await server.request("GET", "/healthz/other", client=pki.client))[0] == 404
        assert (await server.request("GET", "/nothing", client=pki.client))[0] == 404
        assert (await server.request("POST", "/pods", client=pki.client))[0] == 405


async def test_configz_shows_the_kubernetes_version_beside_the_settings(
    pki: Pki, tmp_path: Path
) -> None:
    found = {"running": "1.36", "source": "record"}
    view = replace(make_view(tmp_path), version=lambda: found)
    async with serving(view, None, pki, AccessSettings(always_allow=True)) as server:
        _, text = await server.request("GET", "/configz", client=pki.client)
    assert json.loads(text) == {
        "kubeletconfig": {"kind": "KubeletConfiguration"},
        "kubeletpy": {"kubernetesVersion": found},
    }


async def test_debugging_off(pki: Pki, tmp_path: Path) -> None:
    access = AccessSettings(always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access, debugging=False) as server:
        for route, path in PATHS:
            status, _ = await server.request(route.methods[0], concrete(path), client=pki.client)
            off = 405 if route.debugging else 404 if route.debugging_only else None
            assert off in (None, status), path
            assert off is not None or status not in (404, 405) or "{" in path, path


async def test_a_head_that_is_too_large_is_refused(pki: Pki, tmp_path: Path) -> None:
    async with serving(make_view(tmp_path), Reviewer(), pki) as server:
        status, text = await server.request("GET", "/pods", headers={"X": "y" * 100_000})
        assert status == 400
        assert "Traceback" not in text


async def test_a_new_certificate_is_served_at_once(pki: Pki, tmp_path: Path) -> None:
    mine = KeyPair.named(tmp_path, "server")
    mine.store(pki.server.certificate.read_bytes(), pki.server.key.read_bytes())
    client_ca = tmp_path / "client-ca.crt"
    shutil.copy(pki.ca.certificate, client_ca)
    settings = ServerSettings(
        address="127.0.0.1",
        port=0,
        certificate=str(mine.certificate),
        key=str(mine.key),
        client_ca=str(client_ca),
        access=AccessSettings(always_allow=True),
    )
    async with AsyncExitStack() as stack:
        bound = Ports(settings)
        view = make_view(tmp_path)
        served = KubeletServer(
            bound,
            view,
            None,
            metrics=Metrics().http,
            clock=SystemClock(),
            node_ips=[],
            program=PROGRAM,
        )
        stack.push_async_callback(served.close)
        await served.start()
        await served.serve()
        server = Running(bound.port, pki, view)
        assert (await server.request("GET", "/pods", client=pki.client))[0] == 200
        # with broken files the old certificate stays in use
        mine.certificate.write_text("spoilt")
        assert (await server.request("GET", "/pods", client=pki.client))[0] == 200
        x509.make_signed(mine, pki.other_ca, Names("x", (), (), ("127.0.0.1",)))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await server.request("GET", "/pods", client=pki.client)
        mine.store(pki.server.certificate.read_bytes(), pki.server.key.read_bytes())
        shutil.copy(pki.other_ca.certificate, client_ca)
        assert (await server.request("GET", "/pods", client=pki.stranger))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await server.request("GET", "/pods", client=pki.client)


async def test_the_read_only_port_shows_only_what_may_be_read(pki: Pki, tmp_path: Path) -> None:
    probe = Ports(ServerSettings(address="127.0.0.1", port=0))
    port = probe.port
    probe.close()
    async with (
        serving(make_view(tmp_path), None, pki, read_only_port=port),
        aiohttp.ClientSession() as session,
    ):
        for route, path in PATHS:
            url = f"http://127.0.0.1:{port}{concrete(path)}"
            async with session.request(route.methods[0], url) as answer:
                reported = answer.status == 200 or path == "/healthz/{check}"
                assert reported == route.read_only, path
                assert reported or answer.status == (405 if route.debugging else 404), path
            async with session.post(url) as answer:
                if route.read_only and route.any_method:
                    assert answer.status == 200 or path == "/healthz/{check}"
                else:
                    assert answer.status in (404, 405)


async def test_connections_are_bounded(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 4)
    access = AccessSettings(always_allow=True, anonymous=True)
    async with serving(make_view(tmp_path), None, pki, access) as server:
        idle = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pki.context()
            )
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            idle.append(writer)
        status, text = await server.request("GET", "/healthz")
        assert (status, text) == (429, "system:anonymous has too many connections to this port\n")
        idle[0].transport.abort()
        async with asyncio.timeout(5):
            while (await server.request("GET", "/healthz"))[0] != 200:
                pass  # the server sees the end on its next turn


def test_a_taken_port_is_reported_with_what_to_do() -> None:
    first = Ports(ServerSettings(address="127.0.0.1", port=0))
    try:
        with pytest.raises(ServerError, match=r"port: can't listen on 127\.0\.0\.1"):
            Ports(ServerSettings(address="127.0.0.1", port=first.port))
    finally:
        first.close()


def test_cipher_names() -> None:
    assert openssl_names(
        [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "TLS_AES_128_GCM_SHA256",
        ]
    ) == ":".join(
        [
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "AES256-GCM-SHA384",
            "ECDHE-RSA-AES128-SHA",
        ]
    )


# Methods, paths and redirects as Go's plain handlers and multiplexer serve them.


async def request(
    server: Running, method: str, path: str, client: KeyPair | None = None
) -> tuple[int, str | None]:
    """Status and Location; the path is sent as it is and no redirect followed."""
    url = URL(f"{server.url}{path}", encoded=True)
    tls = server.pki.context(client)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, ssl=tls, allow_redirects=False) as answer,
    ):
        return answer.status, answer.headers.get("Location")


@pytest.mark.parametrize(
    ("request_line", "status", "to"),
    [
        ("GET /metrics/resource", 200, None),
        ("POST /metrics/resource", 200, None),
        ("HEAD /metrics/resource", 200, None),
        ("POST /healthz", 200, None),
        ("POST /pods", 405, None),
        ("POST /logs/", 405, None),
        ("PUT /logs/syslog", 405, None),
        ("POST /logs/?query=kubelet", 405, None),
        ("GET //pods", 301, "/pods"),
        ("GET //pods?a=%20b", 301, "/pods?a=%20b"),
        ("POST //pods", 301, "/pods"),
        ("GET /metrics/../pods/", 301, "/pods/"),
        ("GET /metrics/%2e%2e/pods/", 404, None),
        ("GET //host/pods", 301, "/host/pods"),
    ],
)
async def test_methods_and_paths(
    tmp_path: Path, pki: Pki, request_line: str, status: int, to: str | None
) -> None:
    method, path = request_line.split()
    access = AccessSettings(anonymous=True, always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access) as server:
        assert await request(server, method, path) == (status, to)


async def test_a_head_request_needs_the_permission_for_an_empty_verb(
    tmp_path: Path, pki: Pki
) -> None:
    api = Reviewer()
    async with serving(make_view(tmp_path), api, pki) as server:
        assert (await server.request("HEAD", "/metrics", client=pki.client))[0] == 403
        assert api.requested[-1]["spec"]["resourceAttributes"]["verb"] == ""
    api.allowed = {("alice", "", "metrics")}
    async with serving(make_view(tmp_path), api, pki) as server:
        assert (await server.request("HEAD", "/metrics", client=pki.client))[0] == 200


async def test_a_path_is_authorized_before_it_is_cleaned(tmp_path: Path, pki: Pki) -> None:
    """A redirect is hidden from unauthorized clients and grants nothing at its target."""
    api = Reviewer()
    api.allowed = {("alice", "get", "proxy")}
    async with serving(make_view(tmp_path), api, pki) as server:
        assert await request(server, "GET", "/x/../metrics") == (401, None)
        alice = pki.client
        assert await request(server, "GET", "/x/../metrics", alice) == (301, "/metrics")
        assert await request(server, "GET", "/metrics", alice) == (403, None), "where that leads"


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        *(("/", "/"), ("//", "/"), ("/a//b/", "/a/b/"), ("/a/./b/../c", "/a/c"), ("/../x", "/x")),
        *(("/a/.", "/a/"), ("/a/b/..", "/a/"), ("/..", "/"), ("*", "*"), ("", "")),
        *(("/a/..%2fb", "/a/..%2fb"), ("/a/%2e%2e/b", "/a/%2e%2e/b"), ("/a%2f/b", "/a%2f/b")),
        *(("//host/x", "/host/x"), ("/\\host", "/\\host"), ("//\\host", "/%5Chost")),
    ],
)
def test_canonical(path: str, clean: str) -> None:
    assert canonical(path) == clean


# The routes of the agent's server, row by row (docs/reference/server.csv: endpoint).

OPTIONAL = re.compile(r"\[(/?)([^]]*)\]")
NAMES = {"{ns}": "{namespace}", "{path}": "{path:.*}"}
ROWS = [
    row for row in rows("server.csv") if row["kind"] == "endpoint" and row["path"].startswith("/")
]


def paths(written: str) -> set[str]:
    """The route patterns for a path of the table."""
    for theirs, ours in NAMES.items():
        written = written.replace(theirs, ours)
    written = re.sub(r"\{profile\|.*\}", "{profile:.*}", written)
    if not OPTIONAL.search(written):
        return {written}
    without = OPTIONAL.sub("", written, count=1)
    return {OPTIONAL.sub(r"\1\2", written, count=1), without.rstrip("/")}


def route_of(row: dict[str, str]) -> Route | None:
    found = [route for route in ROUTES if paths(row["path"]) <= set(route.paths)]
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_route(row: dict[str, str]) -> None:
    route = route_of(row)
    assert (route is None) == allowed("server.csv", row["path"], "not served")
    if route is None:
        return
    methods = tuple(row["methods"].split())
    assert route.methods == methods
    assert {VERBS[method] for method in methods} == set(row["verbs"].split())
    subresources = tuple(part.removeprefix("nodes/") for part in row["subresource"].split(" else "))
    assert route.subresources == subresources
    assert route.read_only == ("read-only port" in row["auth"])


def test_no_other_route() -> None:
    known = [route_of(row) for row in ROWS]
    ours = [route.paths[0] for route in ROUTES if route not in known]
    assert [path for path in ours if not allowed("server.csv", path, "only here")] == []


# Access to the server without an API that could review clients, by configuration.

WEBHOOK_OFF = {"webhook": {"enabled": False}}


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({}, "authentication.webhook.enabled.*authorization.mode"),
        ({"authentication": WEBHOOK_OFF}, "authorization.mode Webhook"),
        ({"authorization": {"mode": "AlwaysAllow"}}, "authentication.webhook.enabled"),
    ],
)
def test_a_file_that_requires_reviews_is_refused(fields: dict[str, object], parts: str) -> None:
    with pytest.raises(ServerError, match=parts):
        ServerSettings.from_settings(default_settings(address="127.0.0.1", **fields), NodeFlags())


def test_a_configuration_without_reviews_needs_no_api() -> None:
    alone = {"authentication": WEBHOOK_OFF, "authorization": {"mode": "AlwaysAllow"}}
    settings = default_settings(address="127.0.0.1", port=free_port(), **alone)
    ports = Ports(ServerSettings.from_settings(settings, NodeFlags()))
    assert ports.port == settings.port
    ports.close()


def test_without_a_file_only_certificates_count() -> None:
    alone = load(None).settings
    assert alone.authorization.mode == "AlwaysAllow"
    assert not alone.authentication.webhook.enabled
    assert not alone.authentication.anonymous.enabled
    joined = load(None, (), parse_flags(["--kubeconfig=/x"])).settings
    assert joined.authorization.mode == "Webhook"
    assert joined.authentication.webhook.enabled
    flags = parse_flags(["--authorization-mode=Webhook"])
    assert load(None, (), flags).settings.authorization.mode == "Webhook"


# The identity of a client.

ENDS = "Jan  1 00:00:00 2030 GMT"
CERTIFICATE: dict[str, Any] = {
    "notAfter": ENDS,
    "subject": ((("organizationName", "admins"),), (("commonName", "alice"),)),
}


def test_a_certificate_that_expires_during_a_connection_no_longer_counts() -> None:
    ends = ssl.cert_time_to_seconds(ENDS)
    alice = Identity("alice", ("admins", "system:authenticated"))
    assert identity_from_certificate(CERTIFICATE, ends) == alice
    assert identity_from_certificate(CERTIFICATE, ends + 1) is None


def test_the_user_of_a_review() -> None:
    bob = {"username": "bob", "uid": 7, "groups": ["a", "system:authenticated", "a"]}
    assert identity_from_review({**bob, "extra": {"y": ["1", 2], "x": None}}) == Identity(
        "bob", ("a", "system:authenticated"), "7", (("x", ()), ("y", ("1", "2")))
    )
    assert identity_from_review({"username": "bob"}) == Identity("bob", ("system:authenticated",))


def test_reviews_and_certificates_without_a_user() -> None:
    assert identity_from_review({}) is None
    assert identity_from_review({"username": "", "groups": ["admins"]}) is None
    assert identity_from_certificate(None, 0.0) is None
    assert identity_from_certificate({"notAfter": ENDS, "subject": ()}, 0.0) is None
