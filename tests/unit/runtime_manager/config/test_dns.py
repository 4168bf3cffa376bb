"""Resolver configurations of pods (docs/reference/behaviour.md, i11)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.runtime_manager.config.sandbox_config import (
    ResolvConfError,
    ResolverConfig,
    parse_resolv_conf,
    pod_dns,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from tests.unit.runtime_manager.pods_and_records import make_pod

HOST = ResolverConfig(("192.0.2.53",), ("corp.example",), ("timeout:2",))
CLUSTER = RuntimeSettings(cluster_domain="cluster.local", cluster_dns=("10.96.0.10",))
IN_CLUSTER = ResolverConfig(
    ("10.96.0.10",),
    ("prod.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"),
    ("ndots:5",),
)
NO_DOMAIN = RuntimeSettings(cluster_dns=("10.96.0.10",))

ROWS: list[tuple[str, dict[str, Any], RuntimeSettings, ResolverConfig]] = [
    ("cluster-first", {"dnsPolicy": "ClusterFirst"}, CLUSTER, IN_CLUSTER),
    ("unset", {}, CLUSTER, IN_CLUSTER),
    ("unknown-policy", {"dnsPolicy": "Sideways"}, CLUSTER, IN_CLUSTER),
    ("host-network", {"dnsPolicy": "ClusterFirst", "hostNetwork": True}, CLUSTER, HOST),
    (
        "host-network-asks-for-cluster",
        {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
        CLUSTER,
        IN_CLUSTER,
    ),
    ("host-network-unset", {"hostNetwork": True}, CLUSTER, HOST),
    ("default", {"dnsPolicy": "Default"}, CLUSTER, HOST),
    ("none", {"dnsPolicy": "None"}, CLUSTER, ResolverConfig()),
    (
        "no-cluster-domain",
        {},
        NO_DOMAIN,
        ResolverConfig(("10.96.0.10",), ("corp.example",), ("ndots:5",)),
    ),
    (
        "dns-config",
        {
            "dnsConfig": {
                "nameservers": ["10.96.0.10", "198.51.100.1"],
                "searches": ["svc.cluster.local", "own.example"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
            }
        },
        CLUSTER,
        ResolverConfig(
            ("10.96.0.10", "198.51.100.1"),
            (*IN_CLUSTER.searches, "own.example"),
            ("ndots:2", "edns0"),
        ),
    ),
]


@pytest.mark.parametrize(
    ("spec", "settings", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_policies(spec: dict[str, Any], settings: RuntimeSettings, expected: Any) -> None:
    assert pod_dns(make_pod(**spec), settings, HOST) == (expected, ())


def test_missing_cluster_dns_falls_back_to_the_host_and_warns() -> None:
    config, (warning,) = pod_dns(make_pod(), RuntimeSettings(), HOST)
    assert config == HOST
    assert warning.reason == "MissingClusterDNS"
    assert warning.message.startswith('pod: "web_prod(uid-1)". kubelet does not have ClusterDNS IP')


def test_a_node_that_states_to_have_no_cluster_dns_gets_no_warning() -> None:
    assert pod_dns(make_pod(), RuntimeSettings(no_cluster_dns=True), HOST) == (HOST, ())


def test_a_configured_cluster_dns_is_used_in_any_case() -> None:
    settings = RuntimeSettings(
        cluster_domain="cluster.local", cluster_dns=("10.96.0.10",), no_cluster_dns=True
    )
    assert pod_dns(make_pod(), settings, HOST) == (IN_CLUSTER, ())


@pytest.mark.parametrize(
    ("node_ips", "servers"),
    [((), ("127.0.0.1",)), (("192.0.2.1", "2001:db8::1"), ("127.0.0.1", "::1"))],
)
def test_no_resolv_conf(node_ips: tuple[str, ...], servers: tuple[str, ...]) -> None:
    settings = RuntimeSettings(node_ips=node_ips)
    config, _ = pod_dns(make_pod(dnsPolicy="Default"), settings, None)
    assert config == ResolverConfig(servers, (".",), ())


def test_cluster_dns_without_a_resolv_conf() -> None:
    expected = ResolverConfig(IN_CLUSTER.servers, IN_CLUSTER.searches[:3], ("ndots:5",))
    assert pod_dns(make_pod(), CLUSTER, None) == (expected, ())


def test_the_largest_config_within_the_limits() -> None:
    longest = "x" * 253
    searches = (*(longest[1:] + str(n) for n in range(8)), "y" * (2048 - 8 * 254))
    assert len(" ".join(searches)) == 2048
    for host in (
        ResolverConfig(("1.1.1.1", "2.2.2.2", "3.3.3.3"), searches),
        ResolverConfig((), tuple(f"d{n}" for n in range(32))),
    ):
        assert pod_dns(make_pod(dnsPolicy="Default"), CLUSTER, host) == (host, ())
    more = ResolverConfig((), (*searches[:-1], searches[-1] + "y"))
    config, (warning,) = pod_dns(make_pod(dnsPolicy="Default"), CLUSTER, more)
    assert config.searches == searches[:-1]
    assert warning.reason == "DNSConfigForming"


def test_name_server_limit() -> None:
    servers = ("1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4")
    config, (warning,) = pod_dns(
        make_pod(dnsPolicy="Default"), CLUSTER, ResolverConfig(servers=servers)
    )
    assert config.servers == servers[:3]
    assert warning.reason == "DNSConfigForming"
    assert warning.message.endswith("applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3")


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        ([f"d{i}.example" for i in range(40)], 32),
        (["x" * 254, "ok.example"], 1),
        (["y" * 240 + str(i) for i in range(10)], 8),
    ],
)
def test_search_limits(searches: list[str], kept: int) -> None:
    pod = make_pod(dnsPolicy="None", dnsConfig={"searches": searches})
    config, (warning,) = pod_dns(pod, CLUSTER, HOST)
    assert len(config.searches) == kept
    assert len(" ".join(config.searches)) <= 2048
    assert warning.message.startswith("Search Line limits were exceeded")


ZONED = ("fe80::1%3", "fe80::29c:2ff:fea9:fdd0%eth0", "FEBF::1%wlan0", "fe80::2%1")
OTHERS = ("192.0.2.53", "fe80::1", "2001:db8::53%3")


@pytest.mark.parametrize(
    "spec",
    [
        {"dnsPolicy": "Default"},
        {"dnsPolicy": "None", "dnsConfig": {"nameservers": [*ZONED, *OTHERS]}},
        {"dnsPolicy": "Default", "dnsConfig": {"nameservers": list(ZONED)}},
    ],
)
def test_link_local_servers_with_a_zone_take_no_place_in_a_pod(spec: dict[str, Any]) -> None:
    host = ResolverConfig((*ZONED, *OTHERS))
    config, warnings = pod_dns(make_pod(**spec), CLUSTER, host)
    assert config.servers == OTHERS
    assert warnings == ()


@pytest.mark.parametrize("policy", ["Default", "ClusterFirst"])
def test_pods_on_the_network_of_the_host_keep_zones(policy: str) -> None:
    host = ResolverConfig(("fe80::1%3", "192.0.2.53"))
    pod = make_pod(dnsPolicy=policy, hostNetwork=True)
    assert pod_dns(pod, CLUSTER, host) == (host, ())


@pytest.mark.parametrize("searches", [("corp.example",), ()])
def test_a_pod_without_any_server_left_is_warned(searches: tuple[str, ...]) -> None:
    host = ResolverConfig(ZONED, searches)
    config, (warning,) = pod_dns(make_pod(dnsPolicy="Default"), CLUSTER, host)
    # never without any setting: a runtime would copy the host's file
    assert config == ResolverConfig((), searches or (".",))
    assert warning.reason == "DNSConfigForming"
    assert ZONED[0] in warning.message


@pytest.mark.parametrize(
    "server",
    ["127.0.0.53", "::1", "169.254.20.10", "::ffff:169.254.20.10", "::ffff:10.0.0.1%3"],
)
def test_other_servers_of_the_host_are_passed_as_they_are(server: str) -> None:
    host = ResolverConfig((server,))
    assert pod_dns(make_pod(dnsPolicy="Default"), CLUSTER, host) == (host, ())


def test_parse_resolv_conf() -> None:
    text = """# made by hand
search old.example
nameserver 192.0.2.1   # trailing words are ignored
  nameserver 192.0.2.2
options ndots:1 rotate
search new.example. . other.example
options ndots:3 edns0
unknown line
"""
    assert parse_resolv_conf(text) == ResolverConfig(
        ("192.0.2.1", "192.0.2.2"), ("new.example", "other.example"), ("ndots:3", "rotate", "edns0")
    )


def test_a_nameserver_line_without_one() -> None:
    with pytest.raises(ResolvConfError):
        parse_resolv_conf("nameserver\n")
