"""A node's answers to requests by the API itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.node import proxy as node_proxy
from kubeletpy_up.node.proxy import NodeProxy
from kubeletpy_up.pki import certificates
from kubeletpy_up.requests import ADMIN
from tests.kit.embedded import Client, make_registry, node, serving

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=none\r\n\r\n"
NO_PATH = "the server could not find the requested resource"


@asynccontextmanager
async def text_of_node(
    folder: Path, body: bytes, reported: str = "127.0.0.1", kubelet_host: str = ""
) -> AsyncIterator[str]:
    """Text that the API reads from a node with the given answer body and reported address."""
    made = certificates.ensure(folder, "n")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.node.certificate, made.node.key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    status = {
        "addresses": [{"type": "InternalIP", "address": reported}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    nodes = NodeProxy(make_registry(), made.client_context(), kubelet_host)
    try:
        yield await nodes.read_text({"metadata": {"name": "n"}, "status": status}, "/metrics")
    finally:
        await nodes.close()
        server.close()


async def test_a_node_s_text_is_read_regardless_of_its_content_type(tmp_path: Path) -> None:
    async with text_of_node(tmp_path, b"cpu 1\n\xff") as text:
        assert text == "cpu 1\n\ufffd"


async def test_a_node_s_own_server_is_reached_where_it_listens(tmp_path: Path) -> None:
    async with text_of_node(tmp_path, b"cpu 1", "192.0.2.1", "127.0.0.1") as text:
        assert text == "cpu 1"


async def test_an_endless_answer_of_a_node_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_proxy, "MAX_TEXT", 1 << 20)
    with pytest.raises(ApiError, match="answers too much") as caught:
        async with text_of_node(tmp_path, b"x" * (2 << 20)):
            pass
    assert caught.value.code == 503


def echo(request: bytes) -> bytes:
    """The request's first line and its headers that a proxy must not add."""
    head = request.decode().split("\r\n")
    reported = [
        each for each in head[1:] if each.lower().startswith(("authorization", "cookie", "x-"))
    ]
    return "\n".join([head[0], *reported]).encode()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Runs a server that echoes its requests; yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stated = b"tls" if writer.get_extra_info("ssl_object") else b"plain"
        request = await reader.readuntil(b"\r\n\r\n")
        text = b"" if request.startswith(b"HEAD") else stated + b" " + echo(request)
        writer.write(HEAD + text)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def cluster(folder: Path, agent_port: int) -> AsyncIterator[Client]:
    """Client of an API with a node whose server listens on the port."""
    certificates.ensure(folder / "pki", "n1")
    async with serving(folder, folder / "pki") as (api, admin, _):
        made = node(
            addresses=[{"type": "InternalIP", "address": "127.0.0.1"}],
            daemonEndpoints={"kubeletEndpoint": {"Port": agent_port}},
        )
        api.registry.create(ADMIN, "nodes", made)
        yield admin


def agent_tls(folder: Path) -> ssl.SSLContext:
    """TLS context of a server with a certificate of the API's authority for the node n1."""
    made = certificates.ensure(folder / "pki", "n1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.node.certificate, made.node.key)
    return tls


async def test_the_agent_s_port_may_be_named(tmp_path: Path) -> None:
    async with listening(agent_tls(tmp_path)) as port, cluster(tmp_path, port) as admin:
        for name in ("n1", f"n1:{port}", f"https:n1:{port}", f"http:n1:{port}", "n1:"):
            status, text, _ = await admin.ask("GET", f"/api/v1/nodes/{name}/proxy/a//b?c=%20")
            assert (status, text) == (200, "tls GET /a//b?c=%20 HTTP/1.1"), name


async def test_another_server_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_proxy, "may_be_requested", lambda address: True)
    nobody = certificates.ensure(tmp_path / "other", "x")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(nobody.node.certificate, nobody.node.key)
    async with listening() as plain, listening(tls) as secure, cluster(tmp_path, 1) as admin:
        for name, stated in (
            (f"n1:{plain}", "plain"),
            (f"http:n1:{plain}", "plain"),
            (f"https:n1:{secure}", "tls"),
        ):
            path = f"/api/v1/nodes/{name}/proxy/metrics"
            status, text, _ = await admin.ask("GET", path, Cookie="a=b", X_Seen="yes")
            assert (status, text) == (200, f"{stated} GET /metrics HTTP/1.1\nX-Seen: yes"), name
            status, text, _ = await admin.ask("HEAD", path)
            assert (status, text) == (200, ""), name


REFUSED = [
    ("n1:1:2:3", 400, 'invalid node request "n1:1:2:3"'),
    ("ftp:n1:1", 400, 'invalid node request "ftp:n1:1"'),
    (":1", 400, 'invalid node request ":1"'),
    ("n2:10250", 404, 'nodes "n2" not found'),
    ("n1:70000", 503, "error trying to reach service: 70000: unknown port"),
    ("n1:http", 503, "error trying to reach service: http: unknown port"),
    ("n1:2", 400, "address not allowed"),
]


async def test_refused_proxy_requests(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as admin:
        for name, code, message in REFUSED:
            status, answer, _ = await admin.ask("GET", f"/api/v1/nodes/{name}/proxy/")
            assert (status, answer["kind"], answer["message"]) == (code, "Status", message)


async def test_an_absent_server(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as admin:
        status, answer, _ = await admin.ask("GET", "/api/v1/nodes/n1/proxy/")
        assert (status, answer["reason"]) == (503, "ServiceUnavailable")
        assert answer["message"].startswith("error trying to reach service: ")


async def test_workloads_have_no_proxy(tmp_path: Path) -> None:
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    names = [f"{kind}/{name}" for kind in ("pods", "services") for name in ("x", "http:x:80")]
    async with cluster(tmp_path, 1) as admin:
        for method, name, rest in product(methods, names, ("", "/", "/a/b")):
            path = f"/api/v1/namespaces/default/{name}/proxy{rest}"
            status, answer, _ = await admin.ask(method, path, {})
            assert (status, answer["message"]) == (404, NO_PATH), (method, path)
