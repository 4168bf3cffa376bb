"""Static pods from a URL, and two static pods of one name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import until_verdict
from tests.integration.node.conftest import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, container, pod
from tests.integration.node.seen import container_status, is_ready
from tools.env.containerd import Containerd


class Manifests:
    """A web server whose answer tests change."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.wanted_header = "sesame"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                allowed = self.headers.get("X-Open") == outer.wanted_header
                self.send_response(outer.status if allowed else 403)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/pods"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def serve(self, *pods: JSON) -> None:
        self.status = 200
        self.body = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def manifests() -> Iterator[Manifests]:
    made = Manifests()
    yield made
    made.close()


@pytest.fixture(scope="module")
def url_node(make_node: MakeNode, session_containerd2: Containerd, manifests: Manifests) -> Node:
    config = {
        "staticPodURL": manifests.url,
        "staticPodURLHeader": {"X-Open": ["sesame"]},
        "httpCheckFrequency": "1s",
    }
    manifests.serve()
    node = make_node(session_containerd2, config=config)
    node.start()
    return node


def uids(node: Node) -> set[str]:
    return {each.metadata.uid for each in node.sandboxes("default") if each.state == 0}


def test_pods_of_a_url(url_node: Node, manifests: Manifests) -> None:
    node, name = url_node, f"web-{url_node.name}"
    manifests.serve(pod("web"))
    mirror = node.wait_running("default", name)
    assert mirror["metadata"]["annotations"]["kubernetes.io/config.source"] == "http"
    before = uids(node)

    # a server that has lost its mind takes no pod down
    manifests.status, manifests.body = 500, b"oops"
    node.kubectl("delete", "pod", name)
    again = node.wait_running("default", name)
    assert again["metadata"]["uid"] != mirror["metadata"]["uid"]
    manifests.status, manifests.body = 200, b"{ nonsense"
    node.apply(pod("beside"), namespace="default")
    node.wait_running("default", "beside")
    assert before <= uids(node)

    manifests.serve(pod("web", container("other")))
    node.wait_pod(
        "default", name, lambda p: is_ready(p) and bool(container_status(p, "other")), "edited"
    )
    node.until(lambda: not before & uids(node), "the old pod is removed")

    manifests.serve()
    node.wait_removed("default", name)
    node.api.delete("pods", "default", "beside", grace=1)
    node.wait_removed("default", "beside")


def test_the_next_of_a_name_waits_for_the_end_of_the_one_before(
    url_node: Node, manifests: Manifests
) -> None:
    node, name = url_node, f"slow-{url_node.name}"
    old = pod("slow", container("main", DEAF), terminationGracePeriodSeconds=4)
    manifests.serve(old)
    node.wait_running("default", name)
    (before,) = uids(node)
    manifests.serve(pod("slow", container("next")))
    until_verdict(node, "default", name, "the static pod of the same name before it", before)
    assert uids(node) == {before}
    node.wait_pod(
        "default", name, lambda p: is_ready(p) and bool(container_status(p, "next")), "replaced"
    )
    assert len(uids(node)) == 1
    assert before not in uids(node)
    manifests.serve()
    node.wait_removed("default", name)
