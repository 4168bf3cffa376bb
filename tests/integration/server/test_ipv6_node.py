"""A node whose only address is of IPv6, with the default ``address``: what kubectl needs of it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import is_ready
from tests.integration.server.test_kubectl import SECONDS, running
from tools.env.containerd import Containerd
from tools.env.ports import free_port
from tools.env.waiting import wait_until

ADDRESS = "::1"


@pytest.fixture(scope="module")
def ipv6_node(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    node = make_node(session_containerd2)
    node.api.start()
    node.start_agent(f"--node-ip={ADDRESS}")
    node.wait_ready()
    return node


@pytest.fixture
def served(ipv6_node: Node) -> Iterator[str]:
    """A namespace of the test."""
    ipv6_node.api.create("namespaces", "", {"metadata": {"name": "served"}})
    yield "served"
    remove_pods(ipv6_node, "served")


def test_logs_exec_and_port_forward(ipv6_node: Node, served: str) -> None:
    node = ipv6_node
    kubectl = partial(node.kubectl, namespace=served)
    script = f"echo hello; echo page > index.html; httpd -p 7777; {FOREVER}"
    node.apply(pod("serves", container("main", script)), namespace=served)
    reported = node.wait_running(served, "serves")["status"]
    assert (reported["hostIP"], reported["hostIPs"]) == (ADDRESS, [{"ip": ADDRESS}])
    assert kubectl("logs", "serves") == "hello\n"
    assert kubectl("exec", "serves", "--", "echo", "inside") == "inside\n"
    wait_until(
        lambda: ":7777 " in kubectl("exec", "serves", "--", "netstat", "-ltn"),
        "a server that listens",
        timeout=SECONDS,
    )
    with running(node, "new", served, "port-forward", "serves", ":7777") as process:
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+) -> 7777", process.stdout.readline().decode())
        assert match is not None
        url = f"http://127.0.0.1:{match[1]}/index.html"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            assert answer.read() == b"page\n"


def test_a_pod_on_the_network_of_the_node_is_probed_by_ipv6(ipv6_node: Node, served: str) -> None:
    port = free_port()
    probe = {"httpGet": {"port": port, "path": "/index.html"}, "periodSeconds": 1}
    script = f"echo page > index.html; httpd -p [{ADDRESS}]:{port}; {FOREVER}"
    on_host = pod("on-host", container("main", script, readinessProbe=probe), hostNetwork=True)
    ipv6_node.apply(on_host, namespace=served)
    reported = ipv6_node.wait_pod(served, "on-host", is_ready, "Ready")["status"]
    assert reported["podIPs"] == [{"ip": ADDRESS}]
