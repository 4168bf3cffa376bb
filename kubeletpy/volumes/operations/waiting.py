"""Which tasks wait for the volumes of a pod, for what, and since when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kubeletpy.volumes.claims.model import WaitCause, Waits

WaitKey = tuple[str, str]
"""Pod uid, name of its volume."""


class VolumeWaiters:
    """Tasks that wait for a change of a pod's volumes."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    @contextmanager
    def at(self, uid: str) -> Iterator[asyncio.Event]:
        """An event that is set on the next change."""
        happened = asyncio.Event()
        self._waiting.setdefault(uid, set()).add(happened)
        try:
            yield happened
        finally:
            self._waiting[uid].discard(happened)
            if not self._waiting[uid]:
                del self._waiting[uid]

    def happened(self, uid: str) -> bool:
        """Wake a pod's waiting tasks; whether there were any."""
        for each in self._waiting.get(uid, ()):
            each.set()
        return uid in self._waiting


class WaitTimes:
    """Since when each volume has been waiting for its current cause."""

    def __init__(self) -> None:
        self._since: dict[WaitKey, tuple[object, float]] = {}

    def update(self, waits: Mapping[WaitKey, Waits], now: float) -> None:
        """Replace all waits by these."""
        since = {}
        for key, wait in waits.items():
            # the attempts of one call, and the times between them, are one wait
            about = wait.call or (wait.cause, wait.object)
            known = self._since.get(key)
            since[key] = known if known is not None and known[0] == about else (about, now)
        self._since = since

    def began_at(self, key: WaitKey) -> float | None:
        """Event-loop time in seconds."""
        found = self._since.get(key)
        return None if found is None else found[1]


def words_of(waits: Mapping[WaitKey, Waits], uids: set[str]) -> dict[str, frozenset[object]]:
    """The waits of each pod's volumes, for comparison."""
    words: dict[str, set[object]] = {uid: set() for uid in uids}
    for (uid, name), wait in waits.items():
        words[uid].add((name, wait.cause, wait.message))
    return {uid: frozenset(each) for uid, each in words.items()}


def is_busy(waits: Mapping[str, Waits]) -> bool:
    """Whether an operation is in progress."""
    return any(wait.cause is WaitCause.BUSY for wait in waits.values())
