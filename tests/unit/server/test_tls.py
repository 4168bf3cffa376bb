"""The server's certificate: none yet, a first one, another one, one that can't be used."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from kubeletpy.host import openssl
from kubeletpy.host.openssl import KeyPair
from kubeletpy.server.tls import ServingTls


async def common_name(port: int, authority: KeyPair) -> str:
    """Of the certificate that a client is shown."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="node"
    )
    shown = writer.get_extra_info("peercert")
    writer.close()
    (name,) = [value for part in shown["subject"] for key, value in part if key == "commonName"]
    return str(name)


async def test_a_certificate_that_comes_later_and_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    openssl.make_authority(authority, "test")

    def made(name: str, pair: KeyPair) -> KeyPair:
        openssl.sign(pair, authority, name=name, server_alternatives=["DNS:node"])
        return pair

    in_use: list[KeyPair | None] = [None]
    tls = ServingTls(lambda: in_use[0])
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context
    )
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await common_name(port, authority)
    one = in_use[0] = made("one", KeyPair.named(tmp_path, "one"))
    assert await common_name(port, authority) == "one"
    made("again", one)
    assert await common_name(port, authority) == "again"
    two = in_use[0] = made("two", KeyPair.named(tmp_path, "two"))
    assert await common_name(port, authority) == "two"
    two.certificate.write_text("garbage")
    assert await common_name(port, authority) == "two"
    assert "can't be used" in caplog.text
    in_use[0] = None
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await common_name(port, authority)
    server.close()


async def test_a_certificate_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    pair = KeyPair.named(tmp_path, "node")
    openssl.make_self_signed(pair, "node", ["DNS:node"])
    in_use: list[KeyPair | None] = [pair]
    tls = ServingTls(lambda: in_use[0])
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context
    )
    port = server.sockets[0].getsockname()[1]
    assert await common_name(port, pair) == "node"
    in_use[0] = None
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await common_name(port, pair)
    server.close()
