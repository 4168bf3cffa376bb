"""Follows through rotations of real runtimes."""

from __future__ import annotations

import gzip
import re
import signal

import pytest

from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.server.test_kubectl import running
from tools.env.containerd import Containerd

LINES = 60_000
pytestmark = pytest.mark.needs("logs in the CRI's format")


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
    finished = re.compile(r"0\.log(\.\d{8}-\d{6}(\.gz)?)?")

    def names() -> list[str]:
        return sorted(path.name for path in folder.iterdir())

    def is_idle() -> bool:
        # the last rotation may still write its compressed copy, a file that has no such name yet
        size = (folder / "0.log").stat().st_size
        return size <= 200 << 10 and all(map(finished.fullmatch, names()))

    node.until(is_idle, "finished rotations", "rotated")
    assert 1 < len(names()) <= 5, names()
    files = [folder / name for name in sorted(names()[1:]) + names()[:1]]
    read = [(file.suffix == ".gz", file.read_bytes()) for file in files]
    kept = b"".join(gzip.decompress(data) if packed else data for packed, data in read)
    lines = [line.split(b" ", 3)[3] for line in kept.splitlines()]
    assert lines[-1] == b"line %d of many" % LINES
    in_current = (folder / "0.log").read_bytes().count(b"\n")
    for tail in (-1, in_current + 1, len(lines) - 1, len(lines) + 1):
        printed = node.kubectl("logs", f"--tail={tail}", "writes", namespace="rotated")
        expected = lines if tail < 0 else lines[-tail:]
        assert printed.encode().splitlines() == expected, tail
    remove_pods(node, "rotated")


@pytest.fixture
def quick(make_node: MakeNode, session_containerd2_idmap: Containerd) -> Node:
    """A node that rotates often and keeps much."""
    config = {
        "containerLogMaxSize": "1Mi",
        "containerLogMonitorInterval": "3s",
        "containerLogMaxFiles": 20,
    }
    node = make_node(session_containerd2_idmap, config=config)
    node.start()
    return node


def test_a_client_that_stood_still_for_rotations_misses_nothing(quick: Node) -> None:
    quick.api.create("namespaces", "", {"metadata": {"name": "behind"}})
    more = "x" * 200
    rounds, lines = 6, 100_000
    first = f"for r in $(seq {rounds}); do seq $((r * {lines} + 1)) $((r * {lines} + {lines}))"
    wait = "echo ready; until [ -e /go ]; do sleep 0.1; done"
    script = f"{wait}; {first} | sed 's/$/ {more}/'; sleep 4; done; echo end; {FOREVER}"
    quick.apply(pod("writes", container("main", script)), namespace="behind")
    quick.wait_running("behind", "writes")
    (folder,) = quick.pod_logs.glob("behind_writes_*/main")
    with running(quick, "new", "behind", "logs", "-f", "writes") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGSTOP)
        quick.kubectl("exec", "writes", "--", "touch", "/go", namespace="behind")
        quick.until(lambda: len(list(folder.glob("*.gz"))) > 3, "compressed rotations", timeout=60)
        process.send_signal(signal.SIGCONT)
        for number in range(lines + 1, (rounds + 1) * lines + 1):
            line = process.stdout.readline()
            assert line.startswith(b"%d x" % number), (number, line[:20])
        assert process.stdout.readline() == b"end\n"
    remove_pods(quick, "behind")
