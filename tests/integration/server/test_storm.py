"""A storm of streams on a real node: pods go on, and nothing is left when the clients vanish."""

from __future__ import annotations

import base64
import itertools
import re
import socket
import ssl
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tools.env.waiting import wait_until

STREAMS = 300
_names = itertools.count(1)


def token(node: Node) -> str:
    config = yaml.safe_load(Path(node.api.endpoint.admin_kubeconfig).read_text())
    return str(config["users"][0]["user"]["token"])


def opened(node: Node, path: str, secret: str, upgrade: str) -> ssl.SSLSocket:
    """A stream of the node's own API, once it is there."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    raw = socket.create_connection(("127.0.0.1", node.port), timeout=30)
    link = context.wrap_socket(raw)
    lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {secret}"]
    if upgrade == "websocket":
        key = base64.b64encode(bytes(16)).decode()
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Protocol: v5.channel.k8s.io"]
    elif upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"]
        lines += ["X-Stream-Protocol-Version: portforward.k8s.io"]
    link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = link.recv(4096)
    assert answer.split()[1] in (b"101", b"200"), answer
    return link


def reset(link: ssl.SSLSocket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(link)


def start_time(node: Node, namespace: str) -> float:
    """Seconds until a new pod is Ready."""
    name = f"new-{next(_names)}"
    begun = time.monotonic()
    node.apply(pod(name), namespace=namespace)
    node.wait_running(namespace, name)
    return time.monotonic() - begun


def resident(pid: int) -> int:
    """Megabytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) >> 10


def test_pods_start_in_a_storm_that_leaves_nothing(node2: Node, namespace: str) -> None:
    node, secret = node2, token(node2)
    chatty = container("main", "while :; do echo line; sleep 0.2; done")
    node.apply(pod("busy", chatty, container("other", FOREVER)), namespace=namespace)
    node.wait_running(namespace, "busy")
    pid = node.agent.pid
    assert pid is not None
    base = f"{namespace}/busy"
    kinds = [
        (f"/containerLogs/{base}/main?follow=true", ""),
        (f"/containerLogs/{base}/main?follow=true&timestamps=true", ""),
        (f"/portForward/{base}", "SPDY/3.1"),
        (f"/exec/{base}/other?command=cat&input=1&output=1", "websocket"),
    ]

    def descriptors() -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    for path, upgrade in kinds:  # what is made once
        reset(opened(node, path, secret, upgrade))
    quiet = min(start_time(node, namespace) for _ in range(2))
    before, memory = descriptors(), resident(pid)
    # execs are processes of containerd on two cores: a tenth of the streams
    mixed = [kinds[3] if i % 10 == 0 else kinds[i % 3] for i in range(STREAMS)]
    with ThreadPoolExecutor(8) as threads:
        streams = list(threads.map(lambda kind: opened(node, kind[0], secret, kind[1]), mixed))
    assert descriptors() > before + STREAMS
    stormy = start_time(node, namespace)
    grown = resident(pid) - memory
    for link in streams:
        reset(link)
    assert stormy < max(6 * quiet, 5), (quiet, stormy)
    assert grown < 60, f"{grown} MB for {STREAMS} streams"
    wait_until(lambda: descriptors() <= before + 8, "nothing left open", timeout=60)
