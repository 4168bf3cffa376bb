"""Fields of a pod's spec for its processes, as the processes themselves see them."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.node.conftest import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import status
from tools.env import kernel_limits as kernel
from tools.env.ports import free_port

HOST = {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("net", "pid", "ipc")}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str]]] = {
    # what it runs; container; pod; what it prints
    "user": (
        "id -u; id -g",
        {"securityContext": {"runAsUser": 1000, "runAsGroup": 2000}},
        {},
        ["1000", "2000"],
    ),
    "pod-user": ("id -u", {}, {"securityContext": {"runAsUser": 7}}, ["7"]),
    "groups": (
        "id -G | tr ' ' '\\n' | sort -n | tail -2",
        {},
        {"securityContext": {"runAsUser": 9, "fsGroup": 3000, "supplementalGroups": [4000]}},
        ["3000", "4000"],
    ),
    "no-capabilities": (
        "grep CapEff /proc/self/status | cut -f2",
        {"securityContext": {"capabilities": {"drop": ["ALL"]}}},
        {},
        ["0" * 16],
    ),
    "one-capability": (
        "grep CapEff /proc/self/status | cut -f2",
        {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}},
        {},
        ["0000000000000400"],
    ),
    "read-only": (
        "touch /x 2>/dev/null || echo refused",
        {"securityContext": {"readOnlyRootFilesystem": True}},
        {},
        ["refused"],
    ),
    "working-directory": ("pwd", {"workingDir": "/tmp"}, {}, ["/tmp"]),
    "environment": (
        "echo $A; echo $B; echo $C",
        {
            "env": [
                {"name": "A", "value": "one"},
                {"name": "B", "value": "$(A) and $$(A) and $(NONE)"},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]
        },
        {},
        ["one", "one and $(A) and $(NONE)", "environment"],
    ),
    "arguments": (
        "",
        {
            "command": ["sh", "-c", 'echo "$0"; echo "$1"'],
            "args": ["$(WHO)", "$(NOBODY) $$(WHO)"],
            "env": [{"name": "WHO", "value": "world"}],
        },
        {},
        ["world", "$(NOBODY) $(WHO)"],
    ),
    "hostname": ("hostname", {}, {"hostname": "db"}, ["db"]),
    "host-network": ("readlink /proc/self/ns/net", {}, {"hostNetwork": True}, [HOST["net"]]),
    "host-pid": ("readlink /proc/self/ns/pid", {}, {"hostPID": True}, [HOST["pid"]]),
    "host-ipc": ("readlink /proc/self/ns/ipc", {}, {"hostIPC": True}, [HOST["ipc"]]),
    "memory-limit": (
        f"cat {kernel.file_in_container(kernel.MEMORY_LIMIT_FILE)}",
        {"resources": {"limits": {"memory": "64Mi"}}},
        {},
        [str(64 << 20)],
    ),
    "privileged": (
        "grep CapEff /proc/self/status | cut -f2 | grep -c ffff",
        {"securityContext": {"privileged": True}},
        {},
        ["1"],
    ),
    "dns": (
        "cat /etc/resolv.conf",
        {},
        {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["a.b"]}},
        ["search a.b", "nameserver 192.0.2.53"],
    ),
}


@pytest.fixture(scope="module")
def seen(node2: Node) -> Any:
    """A namespace where each case has run, all side by side."""
    node2.api.create("namespaces", "", {"metadata": {"name": "view"}})
    pods = []
    for name, (script, fields, spec, _) in CASES.items():
        made = container("main", script)
        pods.append(pod(name, {**made, **fields}, restartPolicy="Never", **spec))
    node2.apply(*pods, namespace="view")
    yield "view"
    remove_pods(node2, "view")


@pytest.mark.parametrize("name", list(CASES))
def test_processes_see_their_spec(node2: Node, seen: str, name: str) -> None:
    found = node2.wait_phase(seen, name, "Succeeded")
    assert node2.logs(found, "main").splitlines() == CASES[name][3]


@pytest.mark.needs("address translation")
def test_ports_of_the_host(node2: Node, namespace: str) -> None:
    port = free_port()
    web = "mkdir /www; echo through > /www/index.html; exec httpd -f -p 80 -h /www"
    ports = [{"containerPort": 80, "hostPort": port, "hostIP": "127.0.0.1"}]
    node2.apply(pod("mapped", container("main", web, ports=ports)), namespace=namespace)
    found = node2.wait_running(namespace, "mapped")

    def reaches() -> bool:
        # to the host's own address: routes of loopback to a bridge depend on the machine
        with urllib.request.urlopen(f"http://{status(found)['podIP']}", timeout=2) as answer:
            return bool(answer.read() == b"through\n")

    node2.until(reaches, "the pod's answer")
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"through" in connection.makefile("rb").read()


def test_a_pod_on_the_hosts_network(node2: Node, namespace: str) -> None:
    node2.apply(pod("host", hostNetwork=True), namespace=namespace)
    found = node2.wait_running(namespace, "host")
    assert status(found)["podIP"] == status(found)["hostIP"]


def test_two_pods_reach_each_other(node2: Node, namespace: str) -> None:
    web = "mkdir /www; echo pong > /www/index.html; exec httpd -f -p 8080 -h /www"
    node2.apply(pod("server", container("main", web)), namespace=namespace)
    address = status(node2.wait_running(namespace, "server"))["podIP"]
    ask = f"until wget -q -O - http://{address}:8080; do sleep 0.2; done"
    node2.apply(pod("client", container("main", ask), restartPolicy="Never"), namespace=namespace)
    found = node2.wait_phase(namespace, "client", "Succeeded")
    assert node2.logs(found, "main") == "pong\n"
