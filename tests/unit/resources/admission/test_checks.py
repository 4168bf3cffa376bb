"""Names of sysctls, and which are safe on which kernel."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.names import is_name, namespace_of, normalize
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import (
    clash,
    holders,
    safe_sysctls,
    tolerates,
    untolerated,
)
from tests.kit.pods import make_pod


@pytest.mark.parametrize(
    ("name", "dotted"),
    [
        ("net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
        ("net/ipv4/conf/eth0.1/mtu", "net.ipv4.conf.eth0/1.mtu"),
        ("net.ipv4.conf.eth0/1.mtu", "net.ipv4.conf.eth0/1.mtu"),
        ("/a.b", ".a/b"),
        ("./a", "./a"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_names_with_slashes(name: str, dotted: str) -> None:
    assert normalize(name) == dotted


@pytest.mark.parametrize(
    ("kernel", "safe", "unsafe"),
    [
        ("", {"net.ipv4.tcp_syncookies"}, {"net.ipv4.ip_local_reserved_ports"}),
        ("3.15.9", {"net.ipv4.tcp_syncookies"}, {"net.ipv4.ip_local_reserved_ports"}),
        ("3.16", {"net.ipv4.ip_local_reserved_ports"}, {"net.ipv4.tcp_keepalive_time"}),
        ("4.5.0-1", {"net.ipv4.tcp_keepalive_time"}, {"net.ipv4.tcp_fin_timeout"}),
        ("4.14.99", {"net.ipv4.tcp_fin_timeout"}, {"net.ipv4.tcp_rmem"}),
        ("4.5.9", {"net.ipv4.tcp_keepalive_time"}, {"net.ipv4.tcp_notsent_lowat"}),
        ("4.6", {"net.ipv4.tcp_notsent_lowat"}, {"net.ipv4.tcp_slow_start_after_idle"}),
        ("4.15", {"net.ipv4.tcp_slow_start_after_idle"}, {"net.ipv4.tcp_mem"}),
        ("4.15.0", {"net.ipv4.tcp_rmem"}, {"kernel.sem"}),
        ("6.1.0-13-amd64", {"net.ipv4.tcp_wmem"}, {"kernel.shmall"}),
    ],
)
def test_safe_since_a_kernel(kernel: str, safe: set[str], unsafe: set[str]) -> None:
    found = set(safe_sysctls(kernel))
    assert safe <= found
    assert not unsafe & found


@pytest.mark.parametrize(
    ("sysctl", "namespace"),
    [
        ("kernel.sem", "IPC"),
        ("kernel.shmall", "IPC"),
        ("kernel.msg_next_id", "IPC"),
        ("fs.mqueue.msg_max", "IPC"),
        ("net.core.somaxconn", "Net"),
        ("kernel.domainname", "UTS"),
        ("user.max_user_namespaces", "User"),
        ("kernel.semaphore", None),
        ("kernel.hostname", None),
        ("vm.swappiness", None),
    ],
)
def test_the_namespace_of_a_sysctl(sysctl: str, namespace: str | None) -> None:
    assert namespace_of(sysctl, pattern=True) == namespace
    if namespace is None or sysctl != "kernel.msg_next_id":
        assert namespace_of(sysctl) == namespace
    else:
        assert namespace_of(sysctl) is None, "no pattern stands for it"


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("net.ipv4.ip_forward", True),
        ("net/ipv4/conf/eth0.1/mtu", True),
        ("a" * 253, True),
        ("a" * 254, False),
        ("", False),
        ("net..ipv4", False),
        ("net.ipv4.", False),
        ("net.ipv4.*", False),
        ("Net.ipv4", False),
        ("net.-a", False),
        ("net.a\n", False),
        ("../../etc/x", False),
    ],
)
def test_names_of_sysctls(name: str, valid: bool) -> None:
    assert is_name(name) is valid


async def test_checking_a_name_takes_linear_time() -> None:
    assert not is_name("a" * 100_000 + "!")


# Which taints a toleration tolerates.

META: Any = {"name": "p", "namespace": "d", "uid": "u"}
SPEC: Any = {"containers": [{"name": "main", "image": "i"}]}
TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}
BARE = {"key": "k", "effect": "NoSchedule"}


def tolerating(*tolerations: Any) -> Pod:
    return Pod({"metadata": META, "spec": {**SPEC, "tolerations": list(tolerations)}})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("toleration", "of_value", "of_bare"),
    [
        ({"key": "k", "value": "v"}, True, False),
        ({"key": "k", "value": "v", "operator": "Equal"}, True, False),
        ({"key": "k", "value": "w"}, False, False),
        ({"key": "k"}, False, True),
        ({"key": "k", "value": ""}, False, True),
        ({"key": "other", "value": "v"}, False, False),
        ({"key": "other", "operator": "Exists"}, False, False),
        ({"key": "k", "operator": "Exists"}, True, True),
        ({"operator": "Exists"}, True, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, False, True),
        ({"key": "k", "operator": "Lt", "value": "v"}, False, False),
        ({"key": "k", "operator": "Like", "value": "v"}, False, False),
    ],
)
def test_a_toleration(toleration: dict[str, Any], of_value: bool, of_bare: bool) -> None:
    pod = tolerating(toleration)
    assert (tolerates(pod, TAINT), tolerates(pod, BARE)) == (of_value, of_bare)


def test_one_toleration_of_many_is_enough() -> None:
    pod = tolerating({"key": "x"}, {"key": "k", "value": "v"})
    assert tolerates(pod, TAINT)
    assert not tolerates(tolerating(), TAINT)


@pytest.mark.parametrize(
    ("taints", "effect", "found"),
    [
        ([], "NoExecute", False),
        ([TAINT], "NoExecute", True),
        ([TAINT], "NoSchedule", False),
        ([TAINT, BARE], "NoSchedule", True),
    ],
)
def test_only_taints_of_the_effect_count(taints: list[Any], effect: str, found: bool) -> None:
    bad = untolerated(tolerating(), taints, effect)
    assert bool(bad) is found
    assert all(taint["effect"] == effect for taint in bad)
    assert not untolerated(tolerating({"operator": "Exists"}), taints, effect)


# Pods that hold the host ports which another pod requests.


def pod(name: str, *ports: dict[str, Any]) -> Any:
    return make_pod(name=name, containers=[{"name": "main", "image": "i", "ports": list(ports)}])


WEB = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("has", "wants", "found"),
    [
        (WEB, WEB, [("", "TCP", 8080)]),
        (WEB, {**WEB, "protocol": "UDP"}, []),
        (WEB, {**WEB, "hostPort": 8081}, []),
        (WEB, {"containerPort": 80}, []),
        ({**WEB, "hostPort": 2}, {**WEB, "hostPort": 2}, [("", "TCP", 2)]),
        ({**WEB, "hostIP": "10.0.0.1"}, {**WEB, "hostIP": "10.0.0.1"}, [("10.0.0.1", "TCP", 8080)]),
        ({**WEB, "hostIP": "10.0.0.1"}, WEB, [("", "TCP", 8080)]),
        (WEB, {**WEB, "hostIP": "10.0.0.1"}, [("10.0.0.1", "TCP", 8080)]),
        ({**WEB, "hostIP": "10.0.0.1"}, {**WEB, "hostIP": "10.0.0.2"}, []),
        ({**WEB, "hostIP": "0.0.0.0"}, {**WEB, "hostIP": "10.0.0.2"}, [("10.0.0.2", "TCP", 8080)]),
    ],
)
def test_holders(has: dict[str, Any], wants: dict[str, Any], found: list[object]) -> None:
    holder, other = pod("holder", has), pod("other", {"containerPort": 1, "hostPort": 1})
    reported = [(port, each.name) for port, each in holders(pod("new", wants), [other, holder])]
    assert reported == [(port, "holder") for port in found]
    assert clash(pod("new", wants), [other, holder]) is bool(found)
