"""Who may have a watch: so many a pod, so many a node. Pure.

A watch costs a connection, so a descriptor, on both sides. What gets none is polled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

MAX_POD_WATCHES = 64
"""Watches on behalf of one pod. A pod of an ordinary cluster uses fewer than ten objects."""
MAX_WATCHES = 512
"""Watches of a node, half of the 1,024 descriptors that a process has without more ado. 110 pods
with four objects each of their own, and those they share, are within it."""


class WatchSlots:
    """Counts watches; a watch that several pods share counts for one of them."""

    def __init__(self, pod: int = MAX_POD_WATCHES, node: int = MAX_WATCHES) -> None:
        self._pod = pod
        self._node = node
        self._holders: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()

    def take(self, watch: Hashable, uids: Iterable[str]) -> bool:
        """Whether a watch may be, for one of the pods that want it; it may if it has a slot."""
        if watch in self._holders:
            return True
        if len(self._holders) >= self._node:
            return False
        uid = next((uid for uid in uids if self._counts[uid] < self._pod), None)
        if uid is None:
            return False
        self._hold(watch, uid)
        return True

    def pass_on(self, watch: Hashable, uid: str, others: Iterable[str]) -> None:
        """A pod wants a watch no longer; the first of the others has it now, whatever it has."""
        if self._holders.get(watch) == uid:
            self.give_back(watch)
            other = next(iter(others), None)
            if other is not None:
                self._hold(watch, other)

    def give_back(self, watch: Hashable) -> None:
        """A watch is over."""
        uid = self._holders.pop(watch, None)
        if uid is not None:
            self._counts[uid] -= 1
            if not self._counts[uid]:
                del self._counts[uid]

    def _hold(self, watch: Hashable, uid: str) -> None:
        self._holders[watch] = uid
        self._counts[uid] += 1
