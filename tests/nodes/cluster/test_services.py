"""Pods reach each other over nodes, by their addresses and through Services of kube-proxy."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.objects import service
from tests.nodes.cluster.cluster import Cluster, Namespace
from tests.nodes.cluster.member import NODES, Member
from tests.nodes.cluster.objects import PORT, evenly_spread, spec_of, web, workload

ATTEMPTS = 30
"""Requests among which each of three endpoints has an answer, but for one case in 200,000."""


class Shop:
    """A Service of a server on each node, and a client on each node."""

    def __init__(self, cluster: Cluster, namespace: Namespace) -> None:
        self.cluster, self.namespace = cluster, namespace
        named = service("shop", PORT)
        named["spec"]["type"] = "NodePort"
        servers = spec_of(web(), topologySpreadConstraints=evenly_spread("shop"))
        namespace.apply(
            named,
            workload("Deployment", "shop", servers, replicas=NODES),
            workload("DaemonSet", "client", spec_of()),
        )
        namespace.rollout("deployment/shop", "daemonset/client")
        self.servers, self.clients = namespace.pods("shop"), namespace.pods("client")
        spec = namespace.get("service", "shop")["spec"]
        self.address, self.node_port = spec["clusterIP"], spec["ports"][0]["nodePort"]
        for each in self.servers:
            self.await_endpoint(each)

    def names(self) -> set[str]:
        """The names of the servers."""
        return {each["metadata"]["name"] for each in self.servers}

    def answers(self, client: JSON, url: str, attempts: int) -> list[str]:
        """Answers to requests of a client; a request that fails is an error."""
        loop = f"for i in $(seq {attempts}); do timeout 20 wget -qO- {url} || exit 1; done"
        name = client["metadata"]["name"]
        return self.namespace.kubectl("exec", name, "--", "sh", "-c", loop).split()

    def await_endpoint(self, server: JSON, *, there: bool = True) -> None:
        """Wait until kube-proxy of each node has a server as an endpoint, or has it no longer."""
        rule = f"--to-destination {server['status']['podIP']}:{PORT}"
        found = f"iptables-save -t nat | grep -q -e '{rule}'"
        for member in self.cluster.members:
            member.until(found if there else f"! {{ {found}; }}", say="iptables-save -t nat")


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    """A shop in a namespace of its own."""
    namespace = cluster.new_namespace("shop")
    yield Shop(cluster, namespace)
    namespace.remove()


def test_pods_reach_pods_of_each_node_by_their_addresses(shop: Shop) -> None:
    servers = {each["spec"]["nodeName"]: each for each in shop.servers}
    assert len(servers) == NODES
    for client in shop.clients:
        for server in servers.values():
            url = f"http://{server['status']['podIP']}:{PORT}/name"
            assert shop.answers(client, url, 1) == [server["metadata"]["name"]]


def test_each_node_reaches_all_endpoints_of_a_service(shop: Shop) -> None:
    assert {each["spec"]["nodeName"] for each in shop.clients} == {
        each.name for each in shop.cluster.members
    }
    for client in shop.clients:
        assert set(shop.answers(client, f"http://{shop.address}/name", ATTEMPTS)) == shop.names()


def from_outside(member: Member, port: int) -> str:
    """The answer of a node's port to this machine."""
    url = f"http://{member.address}:{port}/name"
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode()).strip()


def test_a_node_port_of_each_node_leads_to_all_endpoints(shop: Shop) -> None:
    for member in shop.cluster.members:
        answers = {from_outside(member, shop.node_port) for _ in range(ATTEMPTS)}
        assert answers == shop.names()


def test_a_pod_that_is_not_ready_gets_no_requests_until_it_is(shop: Shop) -> None:
    closed = shop.servers[0]
    name = closed["metadata"]["name"]
    shop.namespace.kubectl("exec", name, "--", "rm", "/www/ready")
    shop.namespace.wait("condition=Ready=False", f"pod/{name}")
    shop.await_endpoint(closed, there=False)
    url = f"http://{shop.address}/name"
    for client in shop.clients:
        assert set(shop.answers(client, url, ATTEMPTS)) == shop.names() - {name}
    shop.namespace.kubectl("exec", name, "--", "touch", "/www/ready")
    shop.namespace.wait("condition=Ready", f"pod/{name}")
    shop.await_endpoint(closed)
    for client in shop.clients:
        assert set(shop.answers(client, url, ATTEMPTS)) == shop.names()
