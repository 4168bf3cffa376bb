"""The addresses of a pod: those of its sandbox, or of its node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kubeletpy.pods.pod import Pod, order_pod_ips, pod_addresses


@pytest.mark.parametrize(
    ("ips", "hosts", "ordered"),
    [
        (("fd00::1", "10.0.0.1"), ("192.168.0.1",), ["10.0.0.1", "fd00::1"]),
        (("10.0.0.1", "fd00::1"), ("fd00::9",), ["fd00::1", "10.0.0.1"]),
        (("10.0.0.1", "10.0.0.2"), (), ["10.0.0.1"]),
        (("fd00::1", "10.0.0.1"), (), ["10.0.0.1", "fd00::1"]),
        (("10.0.0.1", "fd00::1"), ("fd00::9", "192.168.0.1"), ["fd00::1", "10.0.0.1"]),
        (("nonsense",), (), []),
        (("::ffff:10.0.0.1", "FD00:0::1"), ("192.168.0.1",), ["10.0.0.1", "fd00::1"]),
        (("fe80::1%eth0", "10.0.0.1"), ("fd00::9",), ["10.0.0.1"]),
    ],
)
def test_pod_ip_order(ips: Sequence[str], hosts: Sequence[str], ordered: list[str]) -> None:
    assert order_pod_ips(ips, hosts) == ordered


@pytest.mark.parametrize(
    ("host_network", "ips", "hosts", "addresses"),
    [
        (False, ("10.0.0.1",), ("192.168.0.1",), ["10.0.0.1"]),
        (False, (), ("192.168.0.1",), []),
        (True, (), ("192.168.0.1",), ["192.168.0.1"]),
        (True, (), ("192.168.0.1", "fd00::9"), ["192.168.0.1", "fd00::9"]),
        (True, ("fd00::9",), ("192.168.0.1", "fd00::9"), ["fd00::9"]),
        (True, (), (), []),
        (True, (), ("192.168.0.1", "192.168.0.2"), ["192.168.0.1"]),
        (True, (), ("192.168.0.1", "192.168.0.2", "fd00::9"), ["192.168.0.1"]),
        (True, ("10.0.0.1", "fd00::1"), ("192.168.0.1", "fd00::9"), ["10.0.0.1", "fd00::1"]),
    ],
)
def test_pod_addresses(
    host_network: bool, ips: Sequence[str], hosts: Sequence[str], addresses: list[str]
) -> None:
    pod = Pod(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c"}], "hostNetwork": host_network},
        }
    )
    assert pod_addresses(pod, ips, hosts) == addresses
