"""A real server on loopback with certificates, and an API with scripted access reviews."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp

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
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.server.build import KubeletServer, Ports
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.settings import (
    AccessSettings,
    EndpointSettings,
    RunningProgram,
    ServerSettings,
)

PROGRAM = RunningProgram(flags={"v": "0"}, started_at=1_700_000_000.0, version="v1.36.0")


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
