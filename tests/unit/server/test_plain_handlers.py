"""Methods, paths and redirects as Go's plain handlers and multiplexer serve them."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from kubeletpy.base.host.files import KeyPair
from kubeletpy.server.routes import canonical
from kubeletpy.server.settings import AccessSettings
from tests.unit.server.helpers import Pki, Reviewer, Running, make_view, serving


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
