"""Connections that say nothing keep nobody out."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from kubeletpy.server.access import AccessSettings
from tests.unit.kubeletpy_up.serving import serving as serving_api
from tests.unit.server.helpers import Pki, make_view, serving

ALLOW = AccessSettings(always_allow=True)
MANY = 300


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Made once."""
    directory: Path = tmp_path_factory.mktemp("pki")
    return Pki(directory)


def silent(port: int) -> list[socket.socket]:
    """Connections that do not even begin with TLS."""
    return [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(MANY)]


async def test_silent_connections_to_the_node(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 40)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        held = await asyncio.to_thread(silent, server.port)
        async with asyncio.timeout(10):
            assert (await server.ask("GET", "/healthz", client=pki.client))[0] == 200
        for each in held:
            each.close()


async def test_silent_connections_to_the_embedded_api(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy_up.http.server.MAX_CONNECTIONS", 40)
    keys = tmp_path_factory.mktemp("keys")
    async with serving_api(tmp_path, keys) as (_, admin, _node):
        port = int(admin.url.rpartition(":")[2])
        held = await asyncio.to_thread(silent, port)
        async with asyncio.timeout(10):
            assert (await admin.ask("GET", "/api/v1/namespaces"))[0] == 200
        for each in held:
            each.close()


async def test_a_stranger_stays_for_a_short_time(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.wire.door.STRANGER_S", 0.2)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=pki.context())
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
