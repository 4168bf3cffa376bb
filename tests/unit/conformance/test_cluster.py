"""A cluster of processes: addresses, routes, its DNS server and its images."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest

from kubeletpy.library.control_plane import Authority
from tools.conformance.cluster import api_server_flags
from tools.conformance.dns import COREFILE, DNS_ADDRESSES, DOMAIN, dns_objects
from tools.conformance.images import COREDNS, etcd_names
from tools.conformance.member import POD_NETWORK, cluster_script, pod_network, proxy_command
from tools.conformance.suite import Machines
from tools.control_plane.plane import SERVICES


def test_pods_of_each_node_have_a_part_of_the_pod_network() -> None:
    subnets = [pod_network(number).subnet.split(",") for number in range(3)]
    for family, whole in enumerate(POD_NETWORK.split(",")):
        parts = {ipaddress.ip_network(each[family]) for each in subnets}
        assert len(parts) == 3
        for part in parts:
            assert part.subnet_of(ipaddress.ip_network(whole))  # type: ignore[arg-type]


def test_a_node_has_routes_to_the_pods_of_the_others() -> None:
    script = cluster_script(1, 3)
    assert "ip route add 10.88.0.0/24 via 10.99.0.10" in script
    assert "ip route add 10.88.2.0/24 via 10.99.0.12" in script
    assert "10.88.1.0/24" not in script
    assert "ip address add fd00:99::11/64 dev eth0" in script
    assert "ip route add fd00:88:0:2::/64 via fd00:99::12" in script
    assert "fd00:88:0:1::" not in script


def test_kube_proxy_leaves_settings_of_the_machine_alone() -> None:
    command = proxy_command(Path("kube-proxy"), Path("kubeconfig"), "node-1")
    assert "--conntrack-max-per-core=0" in command
    assert "--hostname-override=node-1" in command


def test_the_address_of_the_dns_server_is_one_of_services() -> None:
    assert ipaddress.IPv4Address(DNS_ADDRESSES[0]) in ipaddress.IPv4Network(SERVICES)
    for address in DNS_ADDRESSES:
        service = next(each for each in dns_objects(address) if each["kind"] == "Service")
        assert service["spec"]["clusterIP"] == address


def test_the_service_selects_the_pods_of_the_dns_server() -> None:
    objects = {each["kind"]: each for each in dns_objects(DNS_ADDRESSES[0])}
    pods = objects["Deployment"]["spec"]["template"]
    assert objects["Service"]["spec"]["selector"] == pods["metadata"]["labels"]
    assert pods["spec"]["containers"][0]["image"] == COREDNS


def test_the_dns_server_has_the_domain_of_the_cluster() -> None:
    assert f"kubernetes {DOMAIN} " in COREFILE


def test_objects_of_the_whole_cluster_have_no_namespace() -> None:
    of_cluster = [
        each for each in dns_objects(DNS_ADDRESSES[0]) if each["kind"].startswith("Cluster")
    ]
    assert len(of_cluster) == 2
    assert "namespace" not in json.dumps([each["metadata"] for each in of_cluster])


def test_etcd_has_the_names_that_tests_use() -> None:
    listed = "registry.k8s.io/etcd:3.7.0-0\nregistry.k8s.io/pause:3.10.2\n"
    assert etcd_names(listed) == ["registry.k8s.io/etcd:3.7.0-0"]


def flags_of(directory: Path, *, ipv6_first: bool) -> dict[str, str]:
    flags = api_server_flags(Authority(directory / "pki"), ipv6_first=ipv6_first)
    return dict(each.split("=", 1) for each in flags)


def test_the_address_of_the_api_server_is_of_the_family_of_its_service(tmp_path: Path) -> None:
    for ipv6_first in (False, True):
        flags = flags_of(tmp_path, ipv6_first=ipv6_first)
        first = ipaddress.ip_network(flags["--service-cluster-ip-range"].split(",")[0])
        own = ipaddress.ip_address(flags["--advertise-address"])
        assert first.version == own.version == (6 if ipv6_first else 4)


def test_an_api_server_that_is_added_trusts_the_certificate_of_requests(tmp_path: Path) -> None:
    flags = flags_of(tmp_path, ipv6_first=False)
    assert Path(flags["--proxy-client-cert-file"]).is_file()
    assert flags["--requestheader-allowed-names"] == "front-proxy-client"


@pytest.mark.parametrize(
    ("machines", "column", "cluster"),
    [
        (Machines(), "", False),
        (Machines(suite="bookworm"), "-bookworm", False),
        (Machines(2, "trixie"), "-trixie-2-nodes", True),
        (Machines(2), "-2-nodes", True),
        (Machines(2, ipv6_first=True), "-2-nodes-ipv6", True),
    ],
)
def test_reports_of_other_machines_have_names_of_their_own(
    machines: Machines, column: str, cluster: bool
) -> None:
    assert (machines.column, machines.cluster) == (column, cluster)
