"""What a node reads from a real API server by its watches, which it compresses from 1.37 on."""

from __future__ import annotations

import pytest

from kubeletpy.api.types import JSON
from tests.cluster.node import ClusterNode
from tools.control_plane.plane import ControlPlane
from tools.env.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
PRINT = "env | grep SERVICE; while true; do cat /conf/greeting; sleep 1; done"


def service(name: str) -> JSON:
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def greeting(text: str) -> JSON:
    metadata = {"name": "conf"}
    data = {"greeting": f"{text}\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def reader(node: ClusterNode, name: str) -> JSON:
    return node.pod(
        name,
        PRINT,
        container={"volumeMounts": [{"name": "conf", "mountPath": "/conf"}]},
        volumes=[{"name": "conf", "configMap": {"name": "conf"}}],
    )


@pytest.mark.parametrize("protocol", ["HTTP/2", "HTTP/1.1"])
def test_pods_get_service_variables_and_changes(
    plane: ControlPlane, node: ClusterNode, protocol: str
) -> None:
    """The API server ends and begins again, without HTTP/2 the second time; the agent goes on."""
    name = protocol.lower().replace("/", "").replace(".", "")
    if protocol == "HTTP/1.1":
        plane.api_server.stop()
        plane.start_api_server(["--disable-http2-serving=true"])
    node.apply(service(f"shop-{name}"), greeting("hello"), reader(node, name))
    node.wait_ready(name)
    wait_until(lambda: "hello" in node.log(name), "the config map in the container")
    assert f"SHOP_{name.upper()}_SERVICE_HOST=10.96." in node.log(name)
    node.apply(greeting(f"changed-{name}"))
    wait_until(lambda: f"changed-{name}" in node.log(name), "the change", timeout=60)
    explained = node.explain()
    assert f"over {protocol}" in explained
    assert "the watch of" not in explained


def test_an_agent_that_starts_again_keeps_its_pods(node: ClusterNode) -> None:
    node.apply(node.pod("kept", "sleep 100000"))
    node.wait_ready("kept")
    path = "jsonpath={.status.containerStatuses[0].containerID}"
    before = node.kubectl("get", "pod", "kept", "-o", path)
    node.stop()
    node.apply(node.pod("new", "sleep 100000"))
    node.start()
    node.wait_ready("new")
    assert node.kubectl("get", "pod", "kept", "-o", path) == before


def test_exec_and_logs_reach_the_node_through_the_api_server(node: ClusterNode) -> None:
    node.apply(node.pod("talks", "echo said; sleep 100000"))
    node.wait_ready("talks")
    assert node.kubectl("exec", "talks", "--", "echo", "heard") == "heard\n"
    wait_until(lambda: node.kubectl("logs", "talks") == "said\n", "its log")
