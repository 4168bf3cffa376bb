"""A node whose files are on a small file system of their own, with a pod that nothing may touch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.test_agent_restarts import identity
from tools.env.containerd import Containerd
from tools.env.machine_faults import file_system

SIZE = 24 << 20
INODES = 2000
NAMESPACE = "default"


@pytest.fixture(scope="module")
def small_node(make_node: MakeNode, session_containerd2: Containerd) -> Iterator[Node]:
    """All that the agent writes is on 24 MB with 2,000 inodes."""
    node = make_node(session_containerd2)
    small = node.directory / "small"
    with file_system(small, SIZE, INODES):
        node.root_dir, node.pod_logs = small / "kubelet", small / "logs"
        node.start()
        yield node
        for found in node.api.all("pods", NAMESPACE):
            node.api.delete("pods", NAMESPACE, found["metadata"]["name"], grace=1)
        node.until(lambda: not node.api.all("pods", NAMESPACE), "no pods", NAMESPACE)
        node.terminate()


@pytest.fixture(scope="module")
def keeper(small_node: Node) -> JSON:
    """A pod that runs and is probed all the time."""
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "fields", "downwardAPI": {"items": [{"path": "name", **FIELD}]}},
    ]
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 2}
    probe["timeoutSeconds"] = 10  # a busy machine is none of the faults
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    main = container(livenessProbe=probe, readinessProbe=probe, volumeMounts=mounts)
    small_node.apply(pod("keeper", main, volumes=volumes), namespace=NAMESPACE)
    return small_node.wait_running(NAMESPACE, "keeper")


FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.fixture(autouse=True)
def nothing_touches_it(small_node: Node, keeper: JSON) -> Iterator[None]:
    """Check that the pod from before a fault runs on after it, as if there had been none."""
    yield
    small_node.wait_ready()
    found = small_node.wait_running(NAMESPACE, "keeper")
    assert identity(found) == identity(keeper)
