"""Headers that all answers have in common, on both ports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.server.health import HealthServer

from .helpers import Pki, Reviewer, make_view, serving


async def head_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> str:
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head = (await reader.read()).decode().partition("\r\n\r\n")[0].lower()
    writer.close()
    return head


@pytest.mark.parametrize("path", ["/healthz", "/pods", "/nope", "/metrics"])
async def test_answers_do_not_name_the_server_software(path: str, pki: Pki, tmp_path: Path) -> None:
    async with serving(make_view(tmp_path), Reviewer(), pki) as server:
        context = pki.context(pki.client)
        head = await head_of(
            *await asyncio.open_connection("127.0.0.1", server.port, ssl=context), path
        )
    assert "server:" not in head
    assert "x-content-type-options: nosniff" in head


@pytest.mark.parametrize("path", ["/healthz", "/nope", "/metrics"])
async def test_answers_of_the_health_port_do_not_name_the_server_software(path: str) -> None:
    server = HealthServer("127.0.0.1", 0, checks={}, render_metrics=lambda: (b"", "text/plain"))
    await server.start()
    await server.serve()
    head = await head_of(*await asyncio.open_connection("127.0.0.1", server.port), path)
    await server.close()
    assert head.startswith("http/1.1")
    assert "server:" not in head
    assert "x-content-type-options: nosniff" in head
