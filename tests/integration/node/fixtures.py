"""Nodes that the tests of a module share, and a namespace of its own for each test."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.kubectl import Kubectl
from tools.env.sweep import unmount

_numbers = itertools.count(1)
MakeNode = Callable[..., Node]


@pytest.fixture(scope="module")
def make_node(kubectl_versions: dict[str, Kubectl]) -> Iterator[MakeNode]:
    """Call it with a containerd (and Node's keywords): a node that is not started yet."""
    made: list[Node] = []

    def make(containerd: Containerd, name: str = "test-node", config: JSON | None = None) -> Node:
        assert all(node.containerd is not containerd for node in made), "one agent per runtime"
        directory = Path(tempfile.mkdtemp(prefix="kpn-", dir="/tmp"))
        made.append(Node(directory, containerd, kubectl_versions, name, config))
        return made[-1]

    yield make
    left = []
    for node in made:
        left += node.remove()
        unmount(node.directory)
        shutil.rmtree(node.directory)
    assert left == []


@pytest.fixture(scope="module")
def node2(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node on containerd 2.x, shared by the tests of a module."""
    node = make_node(session_containerd2)
    node.start()
    return node


@pytest.fixture(scope="module")
def node16(make_node: MakeNode, session_containerd16: Containerd) -> Node:
    """A node on containerd 1.6, which has no events: shared by the tests of a module."""
    node = make_node(session_containerd16)
    node.start()
    return node


@pytest.fixture(scope="module", params=["node2", "node16"], ids=["containerd2", "containerd16"])
def node(request: pytest.FixtureRequest) -> Node:
    """A node on each of the two containerds in turn, shared by the tests of a module."""
    found: Node = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own on its node; its pods are removed when the test is over."""
    fixtures = ("node", "node2", "node16")
    (name,) = [each for each in fixtures if each in request.fixturenames][:1]
    node: Node = request.getfixturevalue(name)
    title = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower())[5:45].strip("-")
    own = f"{title}-{next(_numbers)}"
    node.api.create("namespaces", "", {"metadata": {"name": own}})
    yield own
    remove_pods(node, own)


def remove_pods(node: Node, namespace: str) -> None:
    """Delete all pods of a namespace as a user would, and wait until API and runtime agree."""
    for pod in node.api.all("pods", namespace):
        node.api.delete("pods", namespace, pod["metadata"]["name"], grace=1)
    node.until(lambda: not node.api.all("pods", namespace), f"no pods in {namespace}", namespace)
    node.api.delete("namespaces", "", namespace)

    def nothing_runs() -> bool:
        with RawRuntime(node.containerd.socket) as raw:
            return not [
                record
                for record in raw.sandboxes()
                if record.labels.get("io.kubernetes.pod.namespace") == namespace
                and record.state == 0
            ]

    node.until(nothing_runs, f"no ready sandbox of {namespace}", namespace)
