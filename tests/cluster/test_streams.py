"""exec, logs, attach and port-forward: the API server connects to the node for each."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.cluster.node import WITHIN, ClusterNode
from tools.env.process import CommandError

pytestmark = pytest.mark.timeout(400)
SCRIPT = (
    "mkdir /www; echo page >/www/index.html; httpd -p 8080 -h /www; "
    "echo begin; while read line; do echo got $line; done; echo end"
)


@pytest.fixture(scope="module")
def talks(node: ClusterNode) -> Iterator[str]:
    """The name of a pod that answers on its standard input, and over HTTP."""
    node.apply(node.pod("talks", SCRIPT, {"stdin": True}, restartPolicy="Never"))
    node.wait_ready("talks")
    yield "talks"
    node.kubectl("delete", "pod/talks", "--ignore-not-found", WITHIN)


def test_exec_returns_output_and_status(node: ClusterNode, talks: str) -> None:
    assert node.kubectl("exec", talks, "--", "echo", "heard") == "heard\n"
    with pytest.raises(CommandError, match="exit code 7"):
        node.kubectl("exec", talks, "--", "sh", "-c", "exit 7")


def test_exec_passes_its_input(node: ClusterNode, talks: str) -> None:
    with node.kubectl_process("exec", "-i", talks, "--", "cat") as process:
        out, _ = process.communicate("line\n" * 50_000, timeout=60)
    assert out == "line\n" * 50_000


def test_port_forward_reaches_the_pod(node: ClusterNode, talks: str) -> None:
    with node.kubectl_process("port-forward", f"pod/{talks}", ":8080") as process:
        assert process.stdout is not None
        forwarded = re.match(r"Forwarding from 127.0.0.1:(\d+) ", process.stdout.readline())
        assert forwarded is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{forwarded[1]}/", timeout=30) as answer:
            assert answer.read() == b"page\n"


def test_logs_follow_what_attach_makes_a_container_print(node: ClusterNode, talks: str) -> None:
    """The last of the module's tests: the container ends with its input."""
    with node.kubectl_process("logs", "--follow", talks) as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == "begin\n"
        with node.kubectl_process("attach", "-i", talks) as attach:
            assert attach.stdin is not None
            assert attach.stdout is not None
            attach.stdin.write("one\n")
            attach.stdin.flush()
            assert attach.stdout.readline() == "got one\n"
            assert follow.stdout.readline() == "got one\n"
        node.kubectl("delete", f"pod/{talks}", "--wait=false")
        assert follow.wait(timeout=60) == 0
