"""Each way to probe a real container, and what a failed one does to a container that is deaf."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready, terminated

EACH_SECOND: JSON = {"periodSeconds": 1, "failureThreshold": 1}
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""HealthCheckResponse on the wire."""


class Health:
    """A real gRPC health server on the host's network, with a status for each service."""

    def __init__(self) -> None:
        self.services = {"": SERVING, "shop": SERVING}
        check = grpc.unary_unary_rpc_method_handler(self._check)
        handlers = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((handlers,))
        self.port = self._server.add_insecure_port("0.0.0.0:0")
        self._server.start()

    def _check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        name = request[2:].decode()
        if name not in self.services:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {name}")
        return self.services[name]

    def close(self) -> None:
        self._server.stop(None)


class Web:
    """A web server on loopback that records its requests."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requested.append((self.path, dict(self.headers)))
                away = {"/moved": "/ok", "/away": "http://192.0.2.1/ok"}.get(self.path)
                code = 302 if away else 200 if self.path == "/ok" else 500
                self.send_response(code)
                if away:
                    self.send_header("Location", away)
                self.end_headers()
                self.wfile.write(b"over there" if away else b"well")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def health() -> Iterator[Health]:
    made = Health()
    yield made
    made.close()


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


def gets(web: Web, path: str, **more: Any) -> JSON:
    where = {"host": "127.0.0.1", "port": web.port, "path": path, **more}
    return container(readinessProbe={"httpGet": where, **EACH_SECOND})


def test_grpc(node: Node, namespace: str, health: Health) -> None:
    """The pods are on the host's network, like the server: each is ready as its service is."""

    def probed(service: str) -> JSON:
        return container(
            readinessProbe={"grpc": {"port": health.port, "service": service}, **EACH_SECOND}
        )

    node.apply(
        pod("shop", probed("shop"), hostNetwork=True),
        pod("other", probed("other"), hostNetwork=True),
        namespace=namespace,
    )
    node.wait_running(namespace, "shop")
    health.services["shop"] = NOT_SERVING
    node.wait_pod(namespace, "shop", lambda p: not is_ready(p), "not ready")
    node.wait_event(
        namespace, "shop", r"Unhealthy: Readiness probe failed: .*responded with \"NOT_SERVING\""
    )
    health.services["shop"] = SERVING
    node.wait_running(namespace, "shop")
    assert not is_ready(node.pod(namespace, "other"))
    node.wait_event(namespace, "other", "Unhealthy: Readiness probe failed: ")


def test_http_headers_and_redirects(node: Node, namespace: str, web: Web) -> None:
    headers = [{"name": "X-Shop", "value": "open"}, {"name": "Host", "value": "shop.example"}]
    node.apply(
        pod("plain", gets(web, "/ok", httpHeaders=headers)),
        pod("moved", gets(web, "/moved")),
        pod("away", gets(web, "/away")),
        pod("sick", gets(web, "/sick")),
        namespace=namespace,
    )
    for name in ("plain", "moved", "away"):
        node.wait_running(namespace, name)
    heard = [supplied for path, supplied in web.requested if path == "/ok" and "X-Shop" in supplied]
    assert heard[0]["X-Shop"] == "open"
    assert heard[0]["Host"] == "shop.example"
    assert heard[0]["User-Agent"].startswith("kube-probe/")
    node.wait_event(
        namespace,
        "away",
        "ProbeWarning: Readiness probe warning: Probe terminated redirects, "
        "Response body: over there",
    )
    node.wait_event(
        namespace,
        "sick",
        "Unhealthy: Readiness probe failed: HTTP .* failed with statuscode: 500",
    )
    assert not [e for e in node.events(namespace, "moved") if "Probe" in e or "Unhealthy" in e]


def test_tcp_by_the_name_of_a_port(node: Node, namespace: str) -> None:
    listen = "while :; do nc -l -p 7070 </dev/null >/dev/null; done & " + FOREVER
    node.apply(
        pod(
            "listens",
            container(
                script=listen,
                ports=[{"name": "talk", "containerPort": 7070}],
                readinessProbe={"tcpSocket": {"port": "talk"}, **EACH_SECOND},
            ),
        ),
        pod(
            "nameless",
            container(readinessProbe={"tcpSocket": {"port": "talk"}, **EACH_SECOND}),
        ),
        namespace=namespace,
    )
    node.wait_running(namespace, "listens")
    node.wait_event(namespace, "nameless", r"Unhealthy: Readiness probe .*talk")
    assert not is_ready(node.pod(namespace, "nameless"))


def test_the_grace_period_of_a_probe(node: Node, namespace: str) -> None:
    """A deaf container goes after the probe's 2 s, not after the pod's 60."""
    probe = {
        "exec": {"command": ["sh", "-c", "! test -e /tmp/broken"]},
        "terminationGracePeriodSeconds": 2,
        **EACH_SECOND,
    }
    deaf = container(script=DEAF, livenessProbe=probe)
    node.apply(pod("deaf", deaf, terminationGracePeriodSeconds=60), namespace=namespace)
    ready = container_status(node.wait_running(namespace, "deaf"))
    node.exec(ready["containerID"], "touch", "/tmp/broken")
    node.wait_event(namespace, "deaf", "Killing: Container main failed liveness probe")
    began = time.monotonic()
    again = node.wait_pod(
        namespace, "deaf", lambda p: container_status(p).get("restartCount") == 1, "restarted"
    )
    assert 1 < time.monotonic() - began < 15
    assert terminated(container_status(again), "lastState")["exitCode"] == 137
    node.api.delete("pods", namespace, "deaf", grace=1)
