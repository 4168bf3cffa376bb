"""Follows through rotations of real runtimes."""

from __future__ import annotations

import re

import pytest

from tests.integration.node.conftest import MakeNode, remove_pods
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.server.test_kubectl import running
from tools.env.containerd import Containerd

LINES = 60_000


@pytest.mark.parametrize("runtime", ["session_containerd2", "session_containerd16"])
def test_a_follow_sees_every_line_through_rotations(
    make_node: MakeNode, runtime: str, request: pytest.FixtureRequest
) -> None:
    containerd: Containerd = request.getfixturevalue(runtime)
    config = {"containerLogMaxSize": "200Ki", "containerLogMonitorInterval": "3s"}
    node = make_node(containerd, config=config)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": "rotated"}})
    count = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i of many; "
    script = count + "[ $((i % 50)) -eq 0 ] && usleep 5000; done; " + FOREVER
    node.apply(pod("writes", container("main", script)), namespace="rotated")
    node.wait_running("rotated", "writes")
    with running(node, "new", "rotated", "logs", "-f", "writes") as process:
        assert process.stdout is not None
        for number in range(1, LINES + 1):
            assert process.stdout.readline() == b"line %d of many\n" % number
    (folder,) = node.pod_logs.glob("rotated_writes_*/main")
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) > 1, "something was rotated"
    assert len(names) <= 5
    assert all(re.fullmatch(r"0\.log(\.\d{8}-\d{6}(\.gz)?)?", name) for name in names), names
    remove_pods(node, "rotated")
