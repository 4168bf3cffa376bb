"""`kubectl why` with a real kubectl, through the API server to the node."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod


def why(node: Node, *arguments: str) -> str:
    program, environment = node.kubectl_program()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "kubeletpy.cli.why", *arguments],
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_decisions_of_the_node_are_shown(node2: Node, namespace: str) -> None:
    node2.apply(pod("bad", container(script="exit 3")), namespace=namespace)
    node2.wait_waiting(namespace, "bad", "CrashLoopBackOff")
    notified = why(node2, f"{namespace}/bad")
    assert notified.startswith(f"{namespace}/bad: not running: container main keeps exiting")
    assert "Last decisions" in notified
    node2.apply(pod("nowhere", nodeName="other"), namespace=namespace)
    notified = why(node2, "-n", namespace, "nowhere")
    assert notified.startswith(f"{namespace}/nowhere: Pending, not Ready\n")
    assert "this is what the API has" in notified
    # no node takes its end over
    node2.kubectl("delete", "pod", "nowhere", "--force", "--grace-period=0", namespace=namespace)
