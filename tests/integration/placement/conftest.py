"""Nodes whose containers have CPUs of their own."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tools.env.containerd import Containerd

STATIC: JSON = {
    "cpuManagerPolicy": "static",
    "cpuManagerReconcilePeriod": "1h",  # so no test passes by a periodic reconcile
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": "0",
}


@pytest.fixture(scope="module")
def node(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node that keeps CPU 0 for itself and has one more."""
    node = make_node(session_containerd2, config=STATIC)
    node.start()
    return node
