"""The agent's server on loopback with certificates, access reviews and a simulated runtime."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.local_server import Rate
from kubeletpy.remote.streams import ForwardSession, ProcessSession
from kubeletpy.server.build import KubeletServer, Ports
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.settings import (
    AccessSettings,
    EndpointSettings,
    RunningProgram,
    ServerSettings,
)

PROGRAM = RunningProgram(flags=lambda: {"v": "0"}, started_at=1_700_000_000.0, version="v1.36.0")


class Reviewer:
    """Answers reviews: tokens to users, and (user, verb, subresource) to yes."""

    def __init__(self) -> None:
        self.tokens: dict[str, JSON] = {}
        self.allowed: set[tuple[str, str, str]] = set()
        self.down = False
        self.requested: list[JSON] = []

    async def create(
        self, resource: Any, obj: JSON, namespace: str | None = None, **_: Any
    ) -> JSON:
        self.requested.append(obj)
        if self.down:
            raise Unavailable("down")
        spec = obj["spec"]
        if resource.kind == "TokenReview":
            user = self.tokens.get(spec["token"])
            return {**obj, "status": {"authenticated": user is not None, "user": user or {}}}
        about = spec["resourceAttributes"]
        assert (about["resource"], about["name"]) == ("nodes", "node-1")
        key = (spec["user"], about["verb"], about["subresource"])
        return {**obj, "status": {"allowed": key in self.allowed}}


class Pki:
    """A CA with a client and a server certificate, and an untrusted CA with a client."""

    def __init__(self, directory: Path) -> None:
        names = ("ca", "client", "other-ca", "stranger", "server")
        self.ca, self.client, self.other_ca, self.stranger, self.server = (
            KeyPair.named(directory, name) for name in names
        )
        x509.make_authority(self.ca, "ca")
        x509.make_authority(self.other_ca, "other")
        alice = Names("alice", ("team",))
        x509.make_signed(self.client, self.ca, alice)
        x509.make_signed(self.stranger, self.other_ca, alice)
        node = Names("node-1", (), ("localhost",), ("127.0.0.1",))
        x509.make_signed(self.server, self.ca, node)

    def context(self, client: KeyPair | None = None) -> ssl.SSLContext:
        """A context for a client that trusts the CA."""
        made = ssl.create_default_context(cafile=str(self.ca.certificate))
        if client is not None:
            made.load_cert_chain(client.certificate, client.key)
        return made


class Running:
    """A running server."""

    def __init__(self, port: int, pki: Pki, view: NodeView) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.port = port
        self.pki = pki
        self.view = view

    async def request(
        self,
        method: str,
        path: str,
        *,
        client: KeyPair | None = None,
        token: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, str]:
        """Status and text of the response."""
        supplied = dict(headers or {})
        if token:
            supplied["Authorization"] = f"Bearer {token}"
        connector = aiohttp.TCPConnector(ssl=self.pki.context(client))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, self.url + path, headers=supplied, data=body) as answer,
        ):
            return answer.status, await answer.text()


class Numbers:
    """Usage of the node, as fixed answers."""

    async def summary(self, *, only_cpu_and_memory: bool) -> bytes:
        return b'{"short":true}' if only_cpu_and_memory else b'{"short":false}'

    async def cadvisor_metrics(self) -> bytes:
        return b"a_container_metric 1\n"

    async def resource_metrics(self) -> bytes:
        return b"a_resource_metric 1\n"

    async def log_metrics(self) -> bytes:
        return b""


def make_view(tmp_path: Path, *pods: JSON, runtime: Any = None) -> NodeView:
    """A node with these pods."""
    manager = PodManager()
    for pod in pods:
        manager.put(Pod(cast(Any, pod)))
    return NodeView(
        node_name="node-1",
        pods=manager,
        cache=PodStatusCache(),
        runtime=runtime or cast(Any, object()),
        status_of=lambda uid: None,
        checks={"ping": lambda: "", "syncloop": lambda: ""},
        render_metrics=lambda: b"a_metric 1\n",
        render_probe_metrics=lambda: b"a_probe_metric 1\n",
        configz=lambda: {"kind": "KubeletConfiguration"},
        pod_logs_dir=str(tmp_path / "logs"),
        stats=cast(Any, Numbers()),
        render_slis=lambda: b"a_health_metric 1\n",
    )


class OnePod:
    """Explains one pod."""

    def pods(self) -> list[dict[str, Any]]:
        return [{"namespace": "ns", "name": "p", "verdict": "fine"}]

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"verdict": "fine"} if (namespace, name) == ("ns", "p") else None

    def node(self) -> dict[str, Any]:
        return {"pressure": None}


@asynccontextmanager
async def serving(
    view: NodeView, api: Any, pki: Pki, access: AccessSettings | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """A server for a view; checkpoints and logs are stored beside the view's pod logs."""
    tracer: Tracer = settings.pop("tracer", NO_TRACER)
    directory = Path(view.pod_logs_dir).parent
    settings.setdefault(
        "endpoints",
        EndpointSettings(
            log_dir=str(directory / "var-log"),
            checkpoint_dir=directory / "checkpoints",
            allocated_pods=True,
        ),
    )
    ports = Ports(
        ServerSettings(
            address="127.0.0.1",
            port=0,
            certificate=str(pki.server.certificate),
            key=str(pki.server.key),
            client_ca=str(settings.pop("client_ca", pki.ca.certificate)),
            access=access or AccessSettings(),
            **settings,
        )
    )
    async with AsyncExitStack() as stack:
        stack.callback(ports.close)
        served = KubeletServer(
            ports,
            view,
            api,
            metrics=Metrics().http,
            clock=SystemClock(),
            node_ips=["127.0.0.1"],
            program=PROGRAM,
            tracer=tracer,
            explained=OnePod(),
        )
        stack.push_async_callback(served.close)
        await served.start()
        await served.serve()
        yield Running(ports.port, pki, view)


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


def hold_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still for rates of calls: a slow machine has as many calls refused."""
    takes = Rate.takes
    monkeypatch.setattr(Rate, "takes", lambda rate, now: takes(rate, 0.0))
