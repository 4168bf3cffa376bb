"""kubectl, registry, Prometheus as the tests use them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import pytest

from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.images import busybox_image
from tools.env.kubectl import Kubectl
from tools.env.process import run
from tools.env.prometheus import Prometheus, check_metrics
from tools.env.registry import Registry

EXPOSITION = b"# HELP answers_total Answers.\n# TYPE answers_total counter\nanswers_total 42\n"


def pull(raw: RawRuntime, image: str, auth: pb.AuthConfig | None = None) -> str:
    """PullImage; returns the image's id."""
    request = pb.PullImageRequest(image=pb.ImageSpec(image=image), auth=auth)
    return str(raw.images.PullImage(request, timeout=30).image_ref)


@pytest.mark.parametrize(("name", "version"), [("old", "v1.20."), ("new", "v1.36.")])
def test_kubectl_of_both_ages(
    kubectl_versions: dict[str, Kubectl], name: str, version: str
) -> None:
    assert version in run(kubectl_versions[name].program, "version", "--client")


def test_pull_with_a_password_only(containerd: Containerd, registry: Registry) -> None:
    containerd.trust(registry.server)
    name = registry.push(busybox_image(extra={"etc/mark": b"private"}), "team/private:1")
    with RawRuntime(containerd.socket) as raw:
        with pytest.raises(grpc.RpcError) as refused:
            pull(raw, name)
        stated = str(refused.value.details())
        assert "401 Unauthorized" in stated or "authorization failed" in stated
        assert pull(raw, name, pb.AuthConfig(username=registry.user, password=registry.password))
        assert raw.has_image(name)


def test_pull_without_a_password(containerd: Containerd, open_registry: Registry) -> None:
    containerd.trust(open_registry.server)
    name = open_registry.push(busybox_image(extra={"etc/mark": b"open"}), "app:1")
    with RawRuntime(containerd.socket) as raw:
        assert pull(raw, name)
        with pytest.raises(grpc.RpcError) as missing:
            pull(raw, f"{open_registry.server}/nothing:1")
        assert "not found" in str(missing.value.details())


class Handler(BaseHTTPRequestHandler):
    """Serves one exposition."""

    def do_GET(self) -> None:
        """Answer any path."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(EXPOSITION)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_prometheus_scrapes(prometheus: Callable[[str], Prometheus]) -> None:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            instance = prometheus(f"127.0.0.1:{server.server_port}")
            instance.wait_scraped()
            (series,) = instance.wait_for("answers_total")
            assert series["value"][1] == "42"
        finally:
            server.shutdown()
            thread.join()


def test_promtool_reads_expositions() -> None:
    assert check_metrics(EXPOSITION) == []
    assert check_metrics(b"# TYPE bad counter\nbad 1\n")
