"""What a node answers when the API itself asks it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.localapi import certificates, node_proxy
from kubeletpy.localapi.errors import ApiError
from kubeletpy.localapi.node_proxy import NodeProxy
from tests.unit.localapi.helpers import make_registry

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=none\r\n\r\n"


@asynccontextmanager
async def asked(folder: Path, body: bytes) -> AsyncIterator[str]:
    """What is read of a node that answers with a body."""
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
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    nodes = NodeProxy(make_registry(), made.client_context())
    try:
        yield await nodes.read_text({"metadata": {"name": "n"}, "status": status}, "/metrics")
    finally:
        await nodes.close()
        server.close()


async def test_a_node_s_text_is_read_whatever_it_says_that_it_is(tmp_path: Path) -> None:
    async with asked(tmp_path, b"cpu 1\n\xff") as text:
        assert text == "cpu 1\n\ufffd"


async def test_a_node_that_does_not_stop_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_proxy, "MAX_TEXT", 1 << 20)
    with pytest.raises(ApiError, match="answers too much") as caught:
        async with asked(tmp_path, b"x" * (2 << 20)):
            pass
    assert caught.value.code == 503
