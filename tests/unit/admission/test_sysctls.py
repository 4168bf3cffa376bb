"""Names of sysctls, and which are safe on which kernel."""

from __future__ import annotations

import pytest

from kubeletpy.admission.sysctls import namespace_of, normalize, safe_sysctls


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
        ("kernel.semaphore", None),
        ("vm.swappiness", None),
    ],
)
def test_whose_a_sysctl_is(sysctl: str, namespace: str | None) -> None:
    assert namespace_of(sysctl) == namespace
