"""The current addresses of a node, those of its machine and those of its object. Pure.

Each is one list that all readers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from kubeletpy.base.api import types as api
from kubeletpy.pods.addresses import canonical_address, family


def host_addresses(shown: Iterable[api.NodeAddress]) -> tuple[str, ...]:
    """The addresses that the pods of a node report as their host's: at most one per family.

    InternalIPs come before ExternalIPs; the first one decides which family is the primary one.
    Source: docs/reference/behaviour.md, e2.
    """
    listed = list(shown)
    first: dict[int, str] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for each in listed:
            address = canonical_address(each.get("address") or "")
            if each.get("type") == kind and address:
                first.setdefault(family(address), address)
    return tuple(first.values())


class NodeAddresses(Sequence[str]):
    """A list of addresses that is updated in place when the addresses of the node change."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._now = tuple(addresses)

    def replace(self, addresses: Iterable[str]) -> bool:
        """Replace the addresses; returns whether they changed."""
        before, self._now = self._now, tuple(addresses)
        return before != self._now

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._now[index]

    def __len__(self) -> int:
        return len(self._now)
