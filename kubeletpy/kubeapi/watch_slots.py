"""Which objects get a watch: limited per pod and per node. Pure.

On HTTP/1.1 a watch costs a connection, and so a file descriptor, on both sides; on HTTP/2 a stream,
of which a server allows 100 or so on a connection. Objects without a watch are polled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

MAX_POD_WATCHES = 64
"""Watches on behalf of one pod. A pod of an ordinary cluster uses fewer than ten objects."""
MAX_WATCHES = 1536
"""Watches of a node over HTTP/2: 500 pods with three objects of their own each, and those they
share. Each takes 25 kB of memory. A server that allows few streams may lower it."""
MAX_HTTP1_WATCHES = 512
"""Watches of a node over HTTP/1.1: half of the 1,024 descriptors that a process has by default."""


class WatchSlots:
    """Counts watches; a watch that several pods share counts for one of them."""

    def __init__(self, pod: int = MAX_POD_WATCHES) -> None:
        self._pod = pod
        self._holders: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._holders)

    def __contains__(self, watch: Hashable) -> bool:
        return watch in self._holders

    def acquire(self, watch: Hashable, uids: Iterable[str], node: int = MAX_WATCHES) -> bool:
        """Take a slot for a watch, on behalf of one of the pods; returns whether it has one.

        Args:
            node: how many the node may have now.
        """
        if watch in self._holders:
            return True
        if len(self._holders) >= node:
            return False
        uid = next((uid for uid in uids if self._counts[uid] < self._pod), None)
        if uid is None:
            return False
        self._assign(watch, uid)
        return True

    def pass_on(self, watch: Hashable, uid: str, others: Iterable[str]) -> None:
        """A pod no longer needs a watch; the first of the others gets it, whatever else it has."""
        if self._holders.get(watch) == uid:
            self.give_back(watch)
            other = next(iter(others), None)
            if other is not None:
                self._assign(watch, other)

    def give_back(self, watch: Hashable) -> None:
        """A watch is over."""
        uid = self._holders.pop(watch, None)
        if uid is not None:
            self._counts[uid] -= 1
            if not self._counts[uid]:
                del self._counts[uid]

    def _assign(self, watch: Hashable, uid: str) -> None:
        self._holders[watch] = uid
        self._counts[uid] += 1
