"""kubectl port-forward with many connections at once, each closed in one direction first.

The server expects a fixed number of bytes. containerd does not pass the end of a client's data on
to the process; after that end it passes on the process's answer for half a second more.
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
    """Wait for the server, send all, close this direction, and read the server's digest."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
        assert link.recv(6) == b"ready\n", "no server"
        link.sendall(content)
        link.shutdown(socket.SHUT_WR)
        got = b""
        while piece := link.recv(4096):
            got += piece
    return got.decode().split()[0] if got else ""


def local_ports(process: subprocess.Popen[bytes]) -> dict[int, int]:
    """The ports here, by the port there."""
    assert process.stdout is not None
    here: dict[int, int] = {}
    while len(here) < AT_ONCE:
        line = process.stdout.readline().decode()
        assert line, "kubectl has ended"
        if found := re.search(r"127\.0\.0\.1:(\d+) -> (\d+)", line):
            here[int(found[2])] = int(found[1])
    return here


@BOTH
def test_many_connections_that_are_half_closed(node: Node, namespace: str, version: str) -> None:
    # a listener each: that of busybox has a queue of two
    ports = range(7700, 7700 + AT_ONCE)
    serve = f"sh -c 'echo ready; head -c {SIZE} | sha256sum'"
    script = "".join(f"nc -ll -p {port} -e {serve} & " for port in ports) + FOREVER
    node.apply(pod("digests", container("main", script)), namespace=namespace)
    node.wait_running(namespace, "digests")

    def listening() -> bool:
        inside = ("exec", "digests", "--", "netstat", "-ltn")
        seen = call(node, version, namespace, *inside)[1].decode()
        return all(f":{port} " in seen for port in ports)

    wait_until(listening, "servers that listen", timeout=SECONDS)
    blobs = {port: os.urandom(SIZE) for port in ports}
    desired = [f":{port}" for port in ports]
    with (
        running(node, version, namespace, "port-forward", "digests", *desired) as process,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        here = local_ports(process)
        found = list(threads.map(lambda port: digest_of(here[port], blobs[port]), ports))
    assert found == [hashlib.sha256(blobs[port]).hexdigest() for port in ports]
