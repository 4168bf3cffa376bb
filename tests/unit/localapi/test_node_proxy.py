"""What the embedded API passes on of a node's answers."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kubeletpy.localapi import certificates
from kubeletpy.localapi.api import LocalApi
from kubeletpy.localapi.requests import ADMIN

FILE = b"0123456789"


async def _answer(request: web.Request) -> web.StreamResponse:
    """Says which path was asked for; knows ranges; tells all sorts of things in headers."""
    headers = {
        "X-Path": request.raw_path,
        "Last-Modified": "Sat, 21 Nov 2026 04:46:09 GMT",
        "Set-Cookie": "a=b",
        "Connection": "X-Hop",
        "X-Hop": "1",
    }
    if request.path == "/busy":
        return web.Response(status=429, text="later", headers={**headers, "Retry-After": "7"})
    if request.path == "/moved":
        return web.Response(status=302, headers={**headers, "Location": "/logs/"})
    if request.headers.get("Range") == "bytes=2-4":
        headers |= {"Content-Range": "bytes 2-4/10", "Accept-Ranges": "bytes"}
        return web.Response(status=206, body=FILE[2:5], headers=headers)
    return web.Response(body=FILE, headers=headers, content_type="text/plain")


@asynccontextmanager
async def _nodes(tmp_path: Path, name: str) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session of the administrator, and the URL of the API; the node answers as above."""
    pki = certificates.ensure(tmp_path / "pki", name)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pki.node.certificate, pki.node.key)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving).start()
    api = LocalApi(tmp_path, name, port=0)
    endpoint = await api.start()
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    api.registry.create(ADMIN, "nodes", node)
    config = json.loads(endpoint.admin_kubeconfig.read_text())
    context = ssl.create_default_context(cafile=str(pki.ca))
    try:
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            connector=aiohttp.TCPConnector(ssl=context),
        ) as session:
            yield session, f"{endpoint.url}/api/v1/nodes/{name}/proxy"
    finally:
        await api.stop()
        await runner.cleanup()


@pytest.mark.parametrize("name", ["node-1", "proxy", "proxy-7"])
async def test_headers_and_paths_pass(tmp_path: Path, name: str) -> None:
    async with _nodes(tmp_path, name) as (session, url):
        async with session.get(url + "/logs/a%2Fb?x=%20y", headers={"Range": "bytes=2-4"}) as got:
            assert (got.status, await got.read()) == (206, b"234")
            assert got.headers["Content-Range"] == "bytes 2-4/10"
            assert got.headers["Accept-Ranges"] == "bytes"
            assert got.headers["Last-Modified"].startswith("Sat, 21 Nov")
            assert got.headers["X-Path"] == "/logs/a%2Fb?x=%20y"
            assert got.headers["Content-Length"] == "3"
            assert not {"Set-Cookie", "X-Hop"} & set(got.headers)
        async with session.get(url) as got:
            assert (got.headers["X-Path"], await got.read()) == ("/", FILE)
        async with session.get(url + "/busy") as got:
            assert (got.status, got.headers["Retry-After"]) == (429, "7")
        async with session.get(url + "/moved", allow_redirects=False) as got:
            assert (got.status, got.headers["Location"]) == (302, "/logs/")
