"""A cluster of processes: addresses, routes, its DNS server and its images."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest

from kubeletpy.library.control_plane import Authority
from tools.conformance.cluster import api_server_flags
from tools.conformance.dns import ADDRESS, COREFILE, DOMAIN, dns_objects
from tools.conformance.images import COREDNS, etcd_names
from tools.conformance.member import POD_NETWORK, network_script, pod_network, proxy_command
from tools.conformance.suite import Machines
from tools.control_plane.plane import SERVICES


def test_pods_of_each_node_have_a_part_of_the_pod_network() -> None:
    whole = ipaddress.IPv4Network(POD_NETWORK)
    subnets = [ipaddress.IPv4Network(pod_network(number).subnet) for number in range(3)]
    assert all(each.subnet_of(whole) for each in subnets)
    assert len(set(subnets)) == 3


def test_a_node_has_routes_to_the_pods_of_the_others() -> None:
    script = network_script(1, 3)
    assert "ip address add 10.99.0.11/24 dev eth0" in script
    assert "ip route add 10.88.0.0/24 via 10.99.0.10" in script
    assert "ip route add 10.88.2.0/24 via 10.99.0.12" in script
    assert "10.88.1.0/24" not in script


def test_kube_proxy_leaves_settings_of_the_machine_alone() -> None:
    command = proxy_command(Path("kube-proxy"), Path("kubeconfig"), "node-1")
    assert "--conntrack-max-per-core=0" in command
    assert "--hostname-override=node-1" in command


def test_the_address_of_the_dns_server_is_one_of_services() -> None:
    assert ipaddress.IPv4Address(ADDRESS) in ipaddress.IPv4Network(SERVICES)
    service = next(each for each in dns_objects() if each["kind"] == "Service")
    assert service["spec"]["clusterIP"] == ADDRESS


def test_the_service_selects_the_pods_of_the_dns_server() -> None:
    objects = {each["kind"]: each for each in dns_objects()}
    pods = objects["Deployment"]["spec"]["template"]
    assert objects["Service"]["spec"]["selector"] == pods["metadata"]["labels"]
    assert pods["spec"]["containers"][0]["image"] == COREDNS


def test_the_dns_server_has_the_domain_of_the_cluster() -> None:
    assert f"kubernetes {DOMAIN} " in COREFILE


def test_objects_of_the_whole_cluster_have_no_namespace() -> None:
    of_cluster = [each for each in dns_objects() if each["kind"].startswith("Cluster")]
    assert len(of_cluster) == 2
    assert "namespace" not in json.dumps([each["metadata"] for each in of_cluster])


def test_etcd_has_the_names_that_tests_use() -> None:
    listed = "registry.k8s.io/etcd:3.7.0-0\nregistry.k8s.io/pause:3.10.2\n"
    assert etcd_names(listed) == ["registry.k8s.io/etcd:3.7.0-0"]


def test_an_api_server_that_is_added_trusts_the_certificate_of_requests(tmp_path: Path) -> None:
    flags = dict(each.split("=", 1) for each in api_server_flags(Authority(tmp_path / "pki")))
    assert Path(flags["--proxy-client-cert-file"]).is_file()
    assert flags["--requestheader-allowed-names"] == "front-proxy-client"


@pytest.mark.parametrize(
    ("machines", "column", "cluster"),
    [
        (Machines(), "", False),
        (Machines(suite="bookworm"), "-bookworm", False),
        (Machines(2), "-2-nodes", True),
    ],
)
def test_reports_of_other_machines_have_names_of_their_own(
    machines: Machines, column: str, cluster: bool
) -> None:
    assert (machines.column, machines.cluster) == (column, cluster)
