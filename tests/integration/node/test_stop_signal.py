"""A pod's own stop signal: sent where the runtime supports it, reported where that is in doubt."""

from __future__ import annotations

import pytest

from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.containerd import Containerd

SCRIPT = "trap 'echo got TERM; exit 0' TERM; trap 'echo got USR1; exit 0' USR1; "
SCRIPT += "while :; do sleep 1 & wait $!; done"


@pytest.fixture(params=["session_containerd2", "session_containerd16"])
def signal_node(request: pytest.FixtureRequest, make_node: MakeNode) -> Node:
    """A node with the gate on."""
    containerd: Containerd = request.getfixturevalue(request.param)
    node = make_node(containerd, config={"featureGates": {"ContainerStopSignals": True}})
    node.start()
    return node


def test_stop_signal(signal_node: Node) -> None:
    node, namespace = signal_node, "signals"
    node.api.create("namespaces", "", {"metadata": {"name": namespace}})
    node.apply(
        pod(
            "usr1",
            container(script=SCRIPT, lifecycle={"stopSignal": "SIGUSR1"}),
            os={"name": "linux"},
        ),
        namespace=namespace,
    )
    running = node.wait_running(namespace, "usr1")
    with (node.log_dir(running) / "main" / "0.log").open() as lines:
        node.kubectl("delete", "pod", "usr1", "--wait=false", namespace=namespace)
        node.wait_removed(namespace, "usr1")
        stated = lines.read()
    # written beside the start: it may come after the pod is shown running
    ignored = [e for e in node.events(namespace, "usr1") if e.startswith("StopSignalIgnored")]
    # a runtime that sends it without reporting that (CRI-O) counts as one that ignores it
    assert "got USR1" in stated or (ignored and "got TERM" in stated)
    remove_pods(node, namespace)
