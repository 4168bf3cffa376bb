"""A node with addresses of IPv6, of both families, and of one on a machine with both.

Test process, runtime and agent are in a network namespace of their own. The agent starts again for
each list of addresses, as on a machine whose addresses change.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kubeletpy.agent.rootless.containerd import Network as PodNetwork
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, running, status
from tests.integration.server.test_kubectl import SECONDS
from tests.integration.server.test_kubectl import running as running_kubectl
from tools.env.containerd import Containerd, programs
from tools.env.kubectl import Kubectl
from tools.env.machine_abilities import ADDRESS_TRANSLATION, FOUND
from tools.env.process import run
from tools.lab.network import Network, entered

FOUR, SIX = "10.97.0.10", "fd00:6::10"
PODS4, PODS6 = "10.98.0.0/24", "fd00:66::/64"
NAMESPACE = "families"
HTTP, GRPC, HOST_PORT = 8080, 8081, 8082
SERVERS = ["fd00:d::a", "10.96.0.10"]
SHOW = 'echo "$POD_IP $POD_IPS $HOST_IP $HOST_IPS"; cat /etc/hosts /etc/resolv.conf; echo end; '
SHOW += FOREVER
ENVIRONMENT = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"status.{path}"}}}
    for name, path in (
        ("POD_IP", "podIP"),
        ("POD_IPS", "podIPs"),
        ("HOST_IP", "hostIP"),
        ("HOST_IPS", "hostIPs"),
    )
]
GATE = "until [ -e /tmp/open ]; do sleep 0.05; done"


class Families(Struct, frozen=True):
    """Addresses of a node, the primary one first, and the subnets of its pods."""

    node: tuple[str, ...]
    pods: str

    @property
    def lasting(self) -> str:
        """The name of a pod that runs on while the addresses of the node change."""
        return "lasting-ipv6" if self.pods == PODS6 else "lasting-both"


LISTS = {
    "ipv6": Families((SIX,), PODS6),
    "both": Families((FOUR, SIX), f"{PODS4},{PODS6}"),
    "ipv6-first": Families((SIX, FOUR), f"{PODS4},{PODS6}"),
    "ipv4-of-both": Families((FOUR,), f"{PODS4},{PODS6}"),
}


class Answers:
    """Servers on all addresses of this thread's network namespace: HTTP and gRPC health."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        """Path and local address of each request, without repetitions."""
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                local = self.connection.getsockname()[0].removeprefix("::ffff:")
                if (self.path, local) not in answers.requests:
                    answers.requests.append((self.path, local))
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"page")

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6

        self._http = Server(("::", HTTP), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self._grpc = grpc.server(ThreadPoolExecutor(1))
        servicer = health.HealthServicer()
        servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._grpc)
        self._grpc.add_insecure_port(f"[::]:{GRPC}")
        self._grpc.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()


class Pods(Struct, frozen=True):
    """Ready pods of a node: one with a network of its own, one on the node's, a static one."""

    node: Node
    families: Families
    in_pod: Answers
    on_node: Answers
    own: JSON
    on_host: JSON
    static: JSON


def pod_network(subnet: str) -> PodNetwork:
    """A network of pods, with host ports if the kernel translates addresses."""
    translates = FOUND[ADDRESS_TRANSLATION]()
    return PodNetwork("families", "families0", subnet, translates, translates)


@pytest.fixture(scope="module")
def runtime(session_dir: Path, kubectl_versions: dict[str, Kubectl]) -> Iterator[Containerd]:
    binaries = programs(2)
    pods = pod_network(PODS6)
    with Network() as network, network.entered():
        run("ip", "link", "delete", "br0")  # no address of IPv4 yet
        run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        for device in ("eth0", "eth1"):
            run("ip", "link", "set", device, "up")
        run("ip", "address", "add", f"{SIX}/64", "dev", "eth0", "nodad")
        instance = Containerd(session_dir / "f", binaries, network=pods)
        instance.start()
        instance.import_images()
        yield instance
        assert instance.remove() == []


@pytest.fixture(scope="module")
def stopped(runtime: Containerd, make_node: MakeNode, session_dir: Path) -> Node:
    """The node, whose agent does not run."""
    resolv_conf = session_dir / "resolv.conf"
    resolv_conf.write_text("nameserver fe80::1%eth0\nnameserver fd00:d::b\n")
    settings = {
        "clusterDNS": SERVERS,
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolv_conf),
    }
    node = make_node(runtime, config=settings)
    node.api.start()
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    return node


@pytest.fixture(scope="module", params=LISTS)
def pods(request: pytest.FixtureRequest, stopped: Node) -> Iterator[Pods]:
    """The pods of a node with each list of addresses in turn."""
    node, families = stopped, LISTS[request.param]
    if FOUR in families.node:
        run("ip", "address", "replace", f"{FOUR}/24", "dev", "eth0")
    if node.containerd.network.subnet != families.pods:
        node.containerd.network = pod_network(families.pods)
        node.containerd.restart()
    on_node = Answers()
    node.start_agent(f"--node-ip={','.join(families.node)}")
    node.until(lambda: addresses(node) == families.node, "the addresses of the node")
    node.wait_ready()
    file = node.manifests / "static.json"
    static = pod("static", container("main", SHOW, env=ENVIRONMENT))
    static["metadata"]["namespace"] = NAMESPACE
    file.write_text(json.dumps(static))
    gate = [container("gate", GATE)]
    own = probed("own", ports=[{"containerPort": HTTP, "hostPort": HOST_PORT}])
    own["spec"] |= {"initContainers": gate, "dnsPolicy": "None"}
    own["spec"]["dnsConfig"] = {"nameservers": ["fd00:d::c", "192.0.2.53"]}
    on_host = probed("on-host")
    on_host["spec"] |= {"hostNetwork": True, "dnsPolicy": "Default"}
    node.apply(own, on_host, namespace=NAMESPACE)
    node.apply(pod(families.lasting), namespace="default")
    held = node.wait_pod(
        NAMESPACE, "own", lambda found: running(container_status(found, "gate")), "held"
    )
    gate_id = container_status(held, "gate")["containerID"]
    with entered(node.container_pid(gate_id)):
        in_pod = Answers()
    node.exec(gate_id, "touch", "/tmp/open")
    names = ("own", "on-host", f"static-{node.name}")
    ready = tuple(node.wait_running(NAMESPACE, each) for each in names)
    yield Pods(node, families, in_pod, on_node, *ready)
    file.unlink()
    remove_pods(node, NAMESPACE)
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    for answers in (in_pod, on_node):
        answers.close()
        assert "/stopping" in {path for path, _ in answers.requests}
    node.terminate()


def addresses(node: Node) -> tuple[str, ...]:
    """The addresses in the node's status."""
    found = (node.api.find("nodes", "", node.name) or {}).get("status") or {}
    listed = found.get("addresses") or ()
    return tuple(each["address"] for each in listed if each["type"] == "InternalIP")


def probed(name: str, **more: Any) -> JSON:
    """A pod with each kind of probe, and hooks by HTTP."""
    soon = {"periodSeconds": 1}
    main = container(
        "main",
        SHOW,
        env=ENVIRONMENT,
        startupProbe={"grpc": {"port": GRPC}, **soon},
        readinessProbe={"httpGet": {"port": HTTP, "path": "/ready"}, **soon},
        livenessProbe={"tcpSocket": {"port": HTTP}, **soon},
        lifecycle={
            "postStart": {"httpGet": {"port": HTTP, "path": "/started"}},
            "preStop": {"httpGet": {"port": HTTP, "path": "/stopping"}},
        },
        **more,
    )
    return pod(name, main)


def shown(pods: Pods, pod: JSON) -> list[str]:
    """The complete output of a pod, which the API server requests at the node's first address."""
    name = pod["metadata"]["name"]

    def complete() -> list[str]:
        *lines, last = pods.node.kubectl("logs", name, namespace=NAMESPACE).splitlines() or [""]
        return lines if last == "end" else []

    found: list[str] = pods.node.until(complete, f"the output of {name}", NAMESPACE, name)
    return found


def test_statuses_have_the_family_of_the_node_first(pods: Pods) -> None:
    subnets = [ipaddress.ip_network(each) for each in pods.families.pods.split(",")]
    first = 6 if ":" in pods.families.node[0] else 4
    for each in (pods.own, pods.static):
        found = [ipaddress.ip_address(ip["ip"]) for ip in status(each)["podIPs"]]
        assert len(found) == len(subnets)
        assert all(any(ip in subnet for subnet in subnets) for ip in found)
        assert found[0].version == first
        assert status(each)["podIP"] == str(found[0])
    on_node = [{"ip": each} for each in pods.families.node]
    assert status(pods.on_host)["podIPs"] == on_node
    for each in (pods.own, pods.on_host, pods.static):
        assert status(each)["hostIPs"] == on_node
        assert status(each)["hostIP"] == pods.families.node[0]


def test_containers_see_the_same_addresses(pods: Pods) -> None:
    for each in (pods.own, pods.on_host, pods.static):
        fields, *files = shown(pods, each)
        ips = [ip["ip"] for ip in status(each)["podIPs"]]
        node = pods.families.node
        assert fields.split() == [ips[0], ",".join(ips), node[0], ",".join(node)]
        if each is not pods.on_host:
            name = each["metadata"]["name"]
            assert [line for line in files if line.endswith(f"\t{name}")] == [
                f"{ip}\t{name}" for ip in ips
            ]
        assert [line.split()[1] for line in files if line.startswith("nameserver")] == {
            "own": ["fd00:d::c", "192.0.2.53"],
            "on-host": ["fe80::1%eth0", "fd00:d::b"],
        }.get(each["metadata"]["name"], SERVERS)


def test_a_running_pod_has_the_addresses_of_now(pods: Pods) -> None:
    desired = pods.families.node
    families = sorted({6, *([4] if "," in pods.families.pods else [])})
    if ":" in desired[0]:
        families.reverse()

    def has_them(found: JSON) -> bool:
        host_ips, pod_ips = (
            [ipaddress.ip_address(each["ip"]) for each in status(found).get(field) or ()]
            for field in ("hostIPs", "podIPs")
        )
        versions = [each.version for each in pod_ips]
        return tuple(map(str, host_ips)) == desired and versions == families

    found = pods.node.wait_pod("default", pods.families.lasting, has_them, "with its addresses")
    assert container_status(found)["restartCount"] == 0


def test_probes_use_the_primary_address_and_hooks_that_of_the_runtime(pods: Pods) -> None:
    """containerd reports the address of IPv4 first, unless its ``ip_pref`` is another."""
    for answers, of in ((pods.in_pod, pods.own), (pods.on_node, pods.on_host)):
        probed = {local for path, local in answers.requests if path == "/ready"}
        assert probed == {status(of)["podIP"]}
    hook = min((ip["ip"] for ip in status(pods.own)["podIPs"]), key=lambda ip: ":" in ip)
    assert ("/started", hook) in pods.in_pod.requests
    assert ("/started", pods.families.node[0]) in pods.on_node.requests


def test_exec_and_port_forward(pods: Pods) -> None:
    command = ("exec", "own", "--", "echo", "inside")
    assert pods.node.kubectl(*command, namespace=NAMESPACE) == "inside\n"
    forward = ("port-forward", "own", f":{HTTP}")
    with running_kubectl(pods.node, "new", NAMESPACE, *forward) as process:
        assert process.stdout is not None
        match = re.search(rf"127\.0\.0\.1:(\d+) -> {HTTP}", process.stdout.readline().decode())
        assert match is not None
        assert page(f"127.0.0.1:{match[1]}") == b"page"


@pytest.mark.needs(ADDRESS_TRANSLATION)
def test_host_ports_at_each_address_of_the_node(pods: Pods) -> None:
    for each in pods.families.node:
        assert page(f"{f'[{each}]' if ':' in each else each}:{HOST_PORT}") == b"page"


def page(where: str) -> bytes:
    """The answer of a server."""
    with urllib.request.urlopen(f"http://{where}/page", timeout=SECONDS) as answer:
        return bytes(answer.read())
