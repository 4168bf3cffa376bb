"""A server of the agent in front of a simulated runtime, and clients that write raw requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.streams import ForwardSession, ProcessSession
from kubeletpy.server.settings import AccessSettings
from tests.unit.server.helpers import Pki, Running, make_view, serving

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {
        "containerStatuses": [{"name": "c", "state": {"running": {}}, "containerID": "x://cid"}]
    },
}
ALLOW = AccessSettings(always_allow=True)
EXEC = "/exec/n/p/c?command=x&input=1&output=1"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Answers the request whose head it gets."""


class Runtime:
    """Returns the URL of a streaming server, or a session of the test, once ``go_on`` is set."""

    def __init__(self) -> None:
        self.requested: list[Any] = []
        self.was_requested = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.url: str | ProcessSession | ForwardSession = ""
        self.error: CRIError | None = None

    async def exec(self, request: Any) -> str | ProcessSession | ForwardSession:
        self.requested.append(request)
        self.was_requested.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return self.url

    attach = port_forward = exec

    async def exec_sync(self, container_id: str, cmd: Any, timeout: float) -> cri.ExecSyncResponse:
        await self.exec((container_id, list(cmd), timeout))
        return cri.ExecSyncResponse(stdout=b"out", stderr=b"err", exit_code=0)


async def idle(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A process without output that discards its input until the end."""
    writer.write(SWITCH)
    while await reader.read(1 << 16):
        pass


@asynccontextmanager
async def node(
    tmp_path: Path, pki: Pki, serve: Serve = idle, **settings: Any
) -> AsyncIterator[tuple[Running, Runtime]]:
    """A server of a node with one pod."""
    runtime = Runtime()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await serve(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        writer.close()

    backend = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1000)
    runtime.url = f"http://127.0.0.1:{backend.sockets[0].getsockname()[1]}/exec/token?x=1"
    view = make_view(tmp_path, POD, runtime=runtime)
    path = tmp_path / "logs/n_p_u/c/0.log"
    path.parent.mkdir(parents=True)
    path.write_text("2026-01-02T03:04:05.1Z stdout F hello\n")
    record = ContainerStatus("cid", "c", ContainerState.RUNNING, log_path=str(path))
    sandbox = SandboxStatus("sid", True)
    view.cache.set(PodRuntimeStatus("u", "p", "n", (sandbox,), (record,), observed_at=1))
    async with serving(view, None, pki, ALLOW, **settings) as server:
        yield server, runtime
    backend.close()


async def connect(server: Running, *, known: bool = True) -> Connection:
    """A connection to the node's port; ``known``: with a client certificate."""
    context = server.pki.context(server.pki.client if known else None)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    writer.transport.set_write_buffer_limits(high=1 << 16)
    return reader, writer


def head(path: str, protocol: str, method: str = "GET", **others: str) -> bytes:
    """The request for an upgrade; ``protocol`` empty: SPDY; ``others``: headers with ``_``."""
    headers = {"Host": "x", "Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    if protocol:
        headers |= {"Upgrade": "websocket", "Sec-WebSocket-Protocol": protocol}
        headers |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "A" * 22 + "=="}
    else:
        headers["X-Stream-Protocol-Version"] = "v4.channel.k8s.io"
    headers |= {name.replace("_", "-"): value for name, value in others.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {each}" for name, each in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
