"""Fake runtimes and clients that are closed after each test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.remote.client import RemoteRuntime
from tests.kit.remote import IMAGES, RUNTIME, FakeServer, version

Serve = Callable[..., Awaitable[FakeServer]]
Dial = Callable[..., RemoteRuntime]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name (pytest's own can be too long)."""
    with tempfile.TemporaryDirectory(prefix="cri") as name:
        yield Path(name)


@pytest.fixture
async def serve(short_dir: Path) -> AsyncIterator[Serve]:
    """serve(name="a", services=..., **answers) starts a fake runtime."""
    servers: list[FakeServer] = []

    async def start(
        name: str = "a", services: tuple[str, ...] = (RUNTIME, IMAGES), **answers: Any
    ) -> FakeServer:
        answers.setdefault("Version", version)
        server = FakeServer(short_dir / f"{name}.sock", answers, services)
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """dial(endpoint, **options) makes a client."""
    clients: list[RemoteRuntime] = []

    def make(endpoint: str, **options: Any) -> RemoteRuntime:
        client = RemoteRuntime(endpoint, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
