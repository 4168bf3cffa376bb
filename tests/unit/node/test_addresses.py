"""The addresses of a node: those of its machine, and those of its object."""

from __future__ import annotations

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.node.facts import NodeAddresses, host_addresses


def test_all_readers_see_the_addresses_of_now() -> None:
    addresses = NodeAddresses(["192.0.2.1"])
    reader = addresses
    assert not addresses.replace(["192.0.2.1"])
    assert addresses.replace(["192.0.2.2", "2001:db8::1"])
    assert (list(reader), len(reader), reader[1:]) == (
        ["192.0.2.2", "2001:db8::1"],
        2,
        ("2001:db8::1",),
    )


IN, OUT = "InternalIP", "ExternalIP"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([], ()),
        ([("Hostname", "10.0.0.1"), ("InternalDNS", "10.0.0.2")], ()),
        ([(IN, "10.0.0.1")], ("10.0.0.1",)),
        ([(IN, "10.0.0.1"), (IN, "10.0.0.2")], ("10.0.0.1",)),
        ([(IN, "10.0.0.1"), (IN, "fd00::1"), (IN, "fd00::2")], ("10.0.0.1", "fd00::1")),
        ([(IN, "fd00::1"), (IN, "10.0.0.1")], ("fd00::1", "10.0.0.1")),
        ([(OUT, "203.0.113.1"), (IN, "10.0.0.1")], ("10.0.0.1",)),
        ([(OUT, "2001:db8::1"), (IN, "10.0.0.1")], ("10.0.0.1", "2001:db8::1")),
        ([(OUT, "203.0.113.1"), ("Hostname", "n")], ("203.0.113.1",)),
        ([(IN, "FD00:0::1")], ("fd00::1",)),
        ([(IN, "::ffff:10.0.0.1"), (IN, "fd00::1")], ("10.0.0.1", "fd00::1")),
        ([(IN, "fe80::1%eth0"), (IN, ""), (IN, "n"), (IN, "10.0.0.1")], ("10.0.0.1",)),
    ],
)
def test_the_addresses_that_pods_report(
    reported: list[tuple[str, str]], expected: tuple[str, ...]
) -> None:
    listed: list[api.NodeAddress] = [{"type": kind, "address": text} for kind, text in reported]
    assert host_addresses(listed) == expected
