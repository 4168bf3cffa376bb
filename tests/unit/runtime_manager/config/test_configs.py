"""Complete sandbox and container configs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.names import normalize
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import ContainerKind, Mount
from kubeletpy.pods.runtime_status import ContainerConfigError, SandboxConfigError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
)
from kubeletpy.runtime_manager.config.sandbox_config import (
    ResolvConfError,
    ResolverConfig,
    build_pod_sandbox_config,
    default_sysctls,
    parse_resolv_conf,
    pod_dns,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from tests.kit.records import container, make_pod, sidecar

SETTINGS = RuntimeSettings(
    memory_capacity=2**33, cluster_domain="cluster.local", selinux_enabled=True
)
DNS = ResolverConfig(("10.96.0.10",), ("cluster.local",), ("ndots:5",))


def sandbox(pod: Any, attempt: int = 0, **more: Any) -> cri.PodSandboxConfig:
    return build_pod_sandbox_config(pod, attempt, SETTINGS, DNS, **more)


def config(
    fields: dict[str, Any] | None = None,
    kind: ContainerKind = ContainerKind.REGULAR,
    spec: dict[str, Any] | None = None,
    **inputs: Any,
) -> cri.ContainerConfig:
    pod = make_pod(container("app", **(fields or {})), **(spec or {}))
    supplied = ContainerInputs(**{"restart_count": 0, "image_ref": "sha256:abc", **inputs})
    return build_container_config(pod, pod.containers[0], kind, SETTINGS, supplied)


@pytest.mark.parametrize(
    "address", ["999.9.9.9", "10.01.2.3", "fe80::1%eth0", "10.0.0.0/8", "localhost", " 10.1.2.3"]
)
def test_a_host_ip_that_is_no_address_is_refused(address: str) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": address}]
    with pytest.raises(SandboxConfigError, match=f'hostIP "{address}" of a port of container c0'):
        sandbox(make_pod(container("c0", ports=ports)))
    assert not sandbox(make_pod(container("c0", ports=ports), hostNetwork=True)).port_mappings


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3", ""])
def test_a_host_ip_that_is_one_is_passed_on(address: str) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": address}]
    (mapping,) = sandbox(make_pod(container("c0", ports=ports))).port_mappings
    assert mapping.host_ip == address


def test_fqdn_as_hostname() -> None:
    pod = make_pod(subdomain="sub", setHostnameAsFQDN=True)
    assert sandbox(pod).hostname == "web.sub.prod.svc.cluster.local"


def test_host_ports_of_regular_containers_and_sidecars() -> None:
    pod = make_pod(
        container(
            "app",
            ports=[
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 80, "hostPort": 8080, "protocol": "UDP"},
                {"containerPort": 81, "hostPort": 8080},
                {"containerPort": 443},
            ],
        ),
        init=(
            sidecar("side", ports=[{"containerPort": 9, "hostPort": 9, "protocol": "SCTP"}]),
            container("init", ports=[{"containerPort": 7, "hostPort": 7}]),
        ),
    )
    assert [
        (port.host_port, port.container_port, port.protocol) for port in sandbox(pod).port_mappings
    ] == [(8080, 80, cri.TCP), (8080, 80, cri.UDP), (9, 9, cri.SCTP)]
    bound = make_pod(container("app", ports=[{"containerPort": 1, "hostPort": 2, "hostIP": "::1"}]))
    assert sandbox(bound).port_mappings[0].host_ip == "::1"


def test_sandbox_security() -> None:
    context = {
        "runAsUser": 5,
        "runAsGroup": 6,
        "fsGroup": 7,
        "supplementalGroups": [8],
        "supplementalGroupsPolicy": "Strict",
        "seLinuxOptions": {"level": "s0"},
    }
    pod = make_pod(
        container("app"),
        init=(container("init", securityContext={"privileged": True}),),
        securityContext=context,
    )
    security = sandbox(pod, extra_groups=(99,)).linux.security_context
    assert security.privileged
    assert (security.run_as_user.value, security.run_as_group.value) == (5, 6)
    assert list(security.supplemental_groups) == [7, 99, 8]
    assert security.supplemental_groups_policy == cri.Strict
    assert security.selinux_options.level == "s0"


def test_a_sandbox_user_needs_no_group() -> None:
    security = sandbox(make_pod(securityContext={"runAsUser": 5})).linux.security_context
    assert security.run_as_user.value == 5
    assert not security.HasField("run_as_group")


def test_a_sandbox_group_needs_a_user() -> None:
    """CRI: run_as_group without run_as_user is an error of the runtime."""
    security = sandbox(make_pod(securityContext={"runAsGroup": 6})).linux.security_context
    assert not security.HasField("run_as_group")


def test_sandbox_resources() -> None:
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    pod = make_pod(
        container("a", resources=resources),
        container("b", resources=resources),
        overhead={"cpu": "250m", "memory": "16Mi"},
    )
    linux = sandbox(pod).linux
    assert linux.resources.cpu_shares == 1024
    assert linux.resources.cpu_quota == 200_000
    assert linux.resources.memory_limit_in_bytes == 128 * 2**20
    assert linux.overhead.cpu_shares == 256
    assert linux.overhead.cpu_quota == 25_000
    assert linux.overhead.memory_limit_in_bytes == 16 * 2**20


DEFAULTS = {
    "net/core/somaxconn": "1024",
    "kernel.shmall": "1",
    "fs.mqueue.msg_max": "2",
    "kernel.domainname": "d",
    "user.max_mnt_namespaces": "3",
}
IPC = {"kernel.shmall", "fs.mqueue.msg_max"}
NET = {"net.core.somaxconn", "kernel.domainname"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, IPC | NET),
        ({"hostNetwork": True}, IPC),
        ({"hostIPC": True}, NET),
        ({"hostPID": True}, IPC | NET),
        ({"hostNetwork": True, "hostIPC": True}, set()),
        ({"hostUsers": True}, IPC | NET),
        ({"hostUsers": False}, IPC | NET | {"user.max_mnt_namespaces"}),
    ],
)
def test_default_sysctls_of_the_pods_own_namespaces(
    spec: dict[str, Any], expected: set[str]
) -> None:
    assert set(default_sysctls(make_pod(**spec), DEFAULTS)) == expected


def test_the_pods_own_sysctls_win_in_either_form() -> None:
    settings = replace(SETTINGS, default_sysctls=DEFAULTS)
    own = [{"name": "net.core.somaxconn", "value": "5"}, {"name": "kernel/shmall", "value": "6"}]
    pod = make_pod(securityContext={"sysctls": own})
    made = build_pod_sandbox_config(pod, 0, settings, DNS).linux.sysctls
    assert dict(made) == {
        "net.core.somaxconn": "5",
        "kernel.shmall": "6",
        "fs.mqueue.msg_max": "2",
        "kernel.domainname": "d",
    }
    assert not sandbox(make_pod()).linux.sysctls


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("plain", "plain"),
        ("/a.b", ".a/b"),
        (".a/b", ".a/b"),
    ],
)
def test_sysctl_names(name: str, expected: str) -> None:
    assert normalize(name) == expected
    pod = make_pod(securityContext={"sysctls": [{"name": name, "value": "1"}]})
    assert dict(sandbox(pod).linux.sysctls) == {expected: "1"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hostname": "NOT OK"}, "not a valid DNS label"),
        ({"hostUsers": False}, "user namespace"),
        ({"securityContext": {"supplementalGroupsPolicy": "Loose"}}, "supplementalGroupsPolicy"),
        ({"overhead": {"cpu": "much"}}, "not a quantity"),
        ({"securityContext": {"runAsUser": 2**70}}, "malformed"),
        ({"securityContext": {"fsGroup": "x"}}, "malformed"),
        ({"securityContext": {"runAsUser": 2**32}}, "malformed field: securityContext.runAsUser"),
        ({"restartPolicy": "never"}, 'malformed field: restartPolicy is "never", not one of'),
        ({"dnsPolicy": "none"}, 'malformed field: dnsPolicy is "none", not one of'),
    ],
)
def test_sandboxes_that_cannot_be(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SandboxConfigError, match=message) as refused:
        sandbox(make_pod(**spec))
    assert ("has a malformed field" in str(refused.value)) is (
        message.startswith("malformed") or message == "not a quantity"
    )


def test_a_uid_cannot_lead_the_logs_elsewhere() -> None:
    with pytest.raises(SandboxConfigError, match="log path"):
        sandbox(make_pod(metadata={"uid": "../../etc"}))


def test_user_namespace_of_a_sandbox() -> None:
    made = sandbox(make_pod(hostUsers=False), userns=UserNamespaceRange(131072))
    assert made.linux.security_context.namespace_options.userns_options.mode == cri.POD


def test_streams() -> None:
    made = config({"stdin": True, "stdinOnce": True})
    assert (made.stdin, made.stdin_once, made.tty) == (True, True, False)
    made = config({"tty": True})
    assert (made.stdin, made.stdin_once, made.tty) == (False, False, True)


def test_command_and_arguments_see_the_final_environment() -> None:
    made = config(
        {
            "env": [{"name": "WHO", "value": "world"}, {"name": "WHO", "value": "all"}],
            "command": ["echo", "$(WHO)"],
            "args": ["$$(WHO)", "$(NOBODY)"],
        }
    )
    assert list(made.command) == ["echo", "all"]
    assert list(made.args) == ["$(WHO)", "$(NOBODY)"]
    assert [(entry.key, entry.value) for entry in made.envs] == [("WHO", b"all")]


def test_no_termination_mount_without_a_path() -> None:
    assert not config(termination_log="/x").mounts
    assert not config({"terminationMessagePath": "/x"}).mounts


def test_an_image_is_mounted_by_its_name_while_it_has_no_reference() -> None:
    (made,) = config(mounts=[Mount("/image", "", image="files:1")]).mounts
    assert (made.image.image, made.image.user_specified_image) == ("files:1", "files:1")


def test_a_container_without_placement_may_use_all_cpus() -> None:
    resources = config({"resources": {"limits": {"cpu": "2"}}}).linux.resources
    assert (resources.cpuset_cpus, resources.cpuset_mems) == ("", "")
    assert resources.cpu_quota == 200_000


def test_an_ephemeral_container_sees_its_target() -> None:
    made = config(kind=ContainerKind.EPHEMERAL, target_container_id="c0ffee")
    options = made.linux.security_context.namespace_options
    assert (options.pid, options.target_id) == (cri.TARGET, "c0ffee")


@pytest.mark.parametrize(
    ("fields", "inputs", "message"),
    [
        ({"securityContext": {"runAsNonRoot": True}}, {}, "image will run as root"),
        ({"resources": {"limits": {"cpu": "lots"}}}, {}, "not a quantity"),
        ({"workingDir": 7}, {}, "malformed"),
        ({"env": "x"}, {}, "malformed"),
        ({"securityContext": "x"}, {}, "malformed"),
        ({"command": ["\ud800"]}, {}, "malformed"),
        ({}, {"restart_count": -1}, "malformed"),
        (
            {"env": [{"name": "A", "value": "x" * 600_000}], "command": ["$(A)$(A)"]},
            {},
            "longer than",
        ),
    ],
)
def test_containers_that_cannot_be(
    fields: dict[str, Any], inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContainerConfigError, match=message):
        config(fields, **inputs)


def test_errors_hold_no_values_of_the_environment() -> None:
    with pytest.raises(ContainerConfigError) as caught:
        config({"env": [{"name": "A", "value": "hunter2\ud800"}]})
    assert "hunter2" not in str(caught.value)


# Resolver configurations of pods (docs/reference/behaviour.md, i11).

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
    "server", ["127.0.0.53", "::1", "169.254.20.10", "::ffff:169.254.20.10", "::ffff:10.0.0.1%3"]
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
