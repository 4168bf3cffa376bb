"""Names of sysctls, and which are safe on which kernel."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.names import is_name, namespace_of, normalize
from kubeletpy.resources.admission.checks import safe_sysctls


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
