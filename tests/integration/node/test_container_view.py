"""Fields of a pod's spec for its processes, as the processes themselves see them."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.node.fixtures import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status
from tools.env import kernel_limits as kernel
from tools.env.ports import free_port

HOST = {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("net", "pid", "ipc")}
LIMITS = (kernel.MEMORY_LIMIT_FILE, kernel.QUOTA_FILE, kernel.SHARES_FILE)

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str]]] = {
    # what it runs; container; pod; what it prints
    "user": (
        "id -u; id -g",
        {"securityContext": {"runAsUser": 1000, "runAsGroup": 2000}},
        {},
        ["1000", "2000"],
    ),
    "pod-user": ("id -u", {}, {"securityContext": {"runAsUser": 7, "runAsNonRoot": True}}, ["7"]),
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
        "echo $A; echo $B; echo $C; echo $D",
        {
            "env": [
                {"name": "A", "value": "one"},
                {"name": "B", "value": "$(A) and $$(A) and $(NONE)"},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {
                    "name": "D",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
                },
            ],
            "resources": {"limits": {"cpu": "250m"}},
        },
        {},
        ["one", "one and $(A) and $(NONE)", "environment", "250"],
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
    "limits": (
        "cat {} {} {} | cut -d ' ' -f 1".format(*map(kernel.file_in_container, LIMITS)),
        {
            "resources": {
                "limits": {"cpu": "500m", "memory": "64Mi"},
                "requests": {"cpu": "250m", "memory": "32Mi"},
            }
        },
        {},
        [str(64 << 20), "50000", str(kernel.kept_shares(256))],
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
        {
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.53"],
                "searches": ["a.b"],
                "options": [{"name": "ndots", "value": "3"}],
            },
        },
        ["search a.b", "nameserver 192.0.2.53", "options ndots:3"],
    ),
    "pod-group": ("id -u; id -g", {}, {"securityContext": {"runAsGroup": 2000}}, ["0", "2000"]),
    "no-new-privileges": (
        "grep NoNewPrivs /proc/self/status | cut -f2",
        {"securityContext": {"allowPrivilegeEscalation": False}},
        {},
        ["1"],
    ),
    "seccomp": (
        "grep Seccomp: /proc/self/status | cut -f2",
        {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
        {},
        ["2"],
    ),
    "no-seccomp": ("grep Seccomp: /proc/self/status | cut -f2", {}, {}, ["0"]),
    "fqdn": (
        "hostname",
        {},
        {"subdomain": "sub", "setHostnameAsFQDN": True},
        ["fqdn.sub.view.svc."],
    ),
    "sysctl": (
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
        {},
        {
            "securityContext": {
                "sysctls": [{"name": "net/ipv4/ip_unprivileged_port_start", "value": "99"}]
            }
        },
        ["99"],
    ),
    "shared-processes": (
        "cat /proc/1/comm | grep -v sh",
        {},
        {"shareProcessNamespace": True},
        ["pause"],
    ),
    "hostname-override": ("hostname", {}, {"hostnameOverride": "db.example"}, ["db.example"]),
    "seccomp-of-the-node": (
        "chmod 700 /tmp 2>/dev/null || echo refused",
        {},
        {
            "securityContext": {
                "seccompProfile": {"type": "Localhost", "localhostProfile": "no.json"}
            }
        },
        ["refused"],
    ),
    "seccomp-off": (
        "grep Seccomp: /proc/self/status | cut -f2",
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
        ["0"],
    ),
    "masked-paths": (
        "cat /proc/interrupts | wc -c; ls /sys/firmware | wc -l;"
        " (echo x > /proc/sys/kernel/domainname) 2>/dev/null || echo refused",
        {},
        {},
        ["0", "0", "refused"],
    ),
    "group-change-policy": (
        "stat -c '%a %g' /e; touch /e/x; stat -c %g /e/x",
        {"volumeMounts": [{"name": "e", "mountPath": "/e"}]},
        {
            "volumes": [{"name": "e", "emptyDir": {}}],
            "securityContext": {"fsGroup": 3000, "fsGroupChangePolicy": "OnRootMismatch"},
        },
        ["2777 3000", "3000"],
    ),
    "resources-of-the-pod": (
        "cat {} {} | cut -d ' ' -f 1".format(
            *map(kernel.file_in_container, (kernel.MEMORY_LIMIT_FILE, kernel.QUOTA_FILE))
        ),
        {},
        {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}},
        [str(64 << 20), "50000"],
    ),
    "services": ("echo $DB_SERVICE_HOST $DB_SERVICE_PORT", {}, {}, ["10.96.0.77 5432"]),
    "no-service-links": (
        "echo ${DB_SERVICE_HOST-none}",
        {},
        {"enableServiceLinks": False},
        ["none"],
    ),
    "device-of-the-node": (
        "stat -c %F /n",
        {"volumeMounts": [{"name": "n", "mountPath": "/n"}]},
        {"volumes": [{"name": "n", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}]},
        ["character special file"],
    ),
    "termination-log-at-a-path": (
        "echo done > /tmp/last; stat -c %a /tmp/last",
        {"terminationMessagePath": "/tmp/last"},
        {},
        ["666"],
    ),
}


@pytest.fixture(scope="module")
def seen(node: Node) -> Iterator[str]:
    """A namespace where each case has run, all side by side."""
    namespace = "view"
    node.api.create("namespaces", "", {"metadata": {"name": namespace}})
    ports = [{"port": 5432}]
    service = {"metadata": {"name": "db"}, "spec": {"clusterIP": "10.96.0.77", "ports": ports}}
    node.api.create("services", namespace, service)
    profiles = node.root_dir / "seccomp"
    profiles.mkdir(exist_ok=True)
    refused = {"names": ["chmod", "fchmod", "fchmodat"], "action": "SCMP_ACT_ERRNO"}
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}
    (profiles / "no.json").write_text(json.dumps(profile))
    pods = []
    for name, (script, fields, spec, _) in CASES.items():
        made = container("main", script)
        pods.append(pod(name, {**made, **fields}, restartPolicy="Never", **spec))
    node.apply(*pods, namespace=namespace)
    yield namespace
    remove_pods(node, namespace)


@pytest.mark.parametrize("name", CASES)
def test_processes_see_their_spec(node: Node, seen: str, name: str) -> None:
    made = node.wait_phase(seen, name, "Succeeded")
    assert node.logs(made, "main").splitlines() == CASES[name][3]


@pytest.mark.needs("supplemental groups policy")
def test_a_strict_group_policy_leaves_out_groups_of_the_image(node2: Node, namespace: str) -> None:
    """The policy is newer than containerd 1.6."""
    user = {"runAsUser": 1000, "runAsGroup": 2000}
    context = {"supplementalGroups": [4000], "supplementalGroupsPolicy": "Strict"}
    main = container("main", "id -G", securityContext=user)
    node2.apply(pod("p", main, restartPolicy="Never", securityContext=context), namespace=namespace)
    assert node2.logs(node2.wait_phase(namespace, "p", "Succeeded"), "main") == "2000 4000\n"


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


def test_a_runtime_class_with_overhead(node2: Node, namespace: str) -> None:
    """The pod's group has room for the overhead; its container is limited without it."""
    overhead = {"podFixed": {"memory": "32Mi"}}
    runtime_class = {"metadata": {"name": "heavy"}, "handler": "runc", "overhead": overhead}
    node2.api.create("runtimeclasses", "", runtime_class)
    main = container("main", FOREVER, resources={"limits": {"memory": "64Mi", "cpu": "1"}})
    spec = {"runtimeClassName": "heavy", "overhead": overhead["podFixed"]}
    node2.apply(pod("p", main, **spec), namespace=namespace)
    made = node2.wait_running(namespace, "p")
    uid = made["metadata"]["uid"]
    assert status(made)["qosClass"] == "Guaranteed"
    assert kernel.memory_limit(f"{node2.cgroup_root}/kubepods/pod{uid}") == 96 << 20
    file = kernel.file_in_container(kernel.MEMORY_LIMIT_FILE)
    code, stated = node2.exec(container_status(made)["containerID"], "cat", file)
    assert (code, stated.strip()) == (0, str(64 << 20))
    assert node2.sandboxes(namespace)[0].runtime_handler == "runc"
