"""The current addresses that a node has on its own: one list shared by all readers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload


class NodeAddresses(Sequence[str]):
    """A list of addresses that is updated in place when the machine's addresses change."""

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
