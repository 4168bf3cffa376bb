"""kubectl port-forward with many connections at once, each closed in one direction first.

The server knows how much it is sent: containerd does not pass the end of what a client sends on to
the process, but for half a second more what the process answers.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.server.test_kubectl import BOTH, SECONDS, call, running
from tools.env.waiting import wait_until

AT_ONCE = 8
SIZE = 300_000


def digest_of(port: int, content: bytes) -> str:
    """Wait for the server, send all, say that it was all, and read what is made of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
        assert link.recv(6) == b"ready\n"
        link.sendall(content)
        link.shutdown(socket.SHUT_WR)
        got = b""
        while piece := link.recv(4096):
            got += piece
    return got.decode().split()[0] if got else ""


def local_port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    found = re.search(r"127\.0\.0\.1:(\d+) -> 7700", line)
    assert found, line
    return int(found[1])


@BOTH
def test_many_connections_that_are_half_closed(node: Node, namespace: str, version: str) -> None:
    script = f"nc -ll -p 7700 -e sh -c 'echo ready; head -c {SIZE} | sha256sum' & {FOREVER}"
    node.apply(pod("digests", container("main", script)), namespace=namespace)
    node.wait_running(namespace, "digests")

    def listening() -> bool:
        inside = ("exec", "digests", "--", "netstat", "-ltn")
        return b":7700 " in call(node, version, namespace, *inside)[1]

    wait_until(listening, "a server that listens", timeout=SECONDS)
    blobs = [os.urandom(SIZE) for _ in range(AT_ONCE)]
    with (
        running(node, version, namespace, "port-forward", "digests", ":7700") as process,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        port = local_port(process)
        found = list(threads.map(lambda blob: digest_of(port, blob), blobs))
    assert found == [hashlib.sha256(blob).hexdigest() for blob in blobs]
