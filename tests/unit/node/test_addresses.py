"""All holders of a node's addresses see the current ones."""

from __future__ import annotations

from kubeletpy.node.addresses import NodeAddresses


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
