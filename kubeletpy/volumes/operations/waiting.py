"""How pods wait for their volumes: which tasks wait, for what, since when, and for how long.

Source: docs/reference/behaviour-storage.md, sd, ss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kubeletpy.volumes.claims import model as claims
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
        """When a wait began, in event-loop time; None: the volume does not wait."""
        found = self._since.get(key)
        return None if found is None else found[1]


def waits_by_pod(waits: Mapping[WaitKey, Waits], uids: set[str]) -> dict[str, frozenset[object]]:
    """The waits of each pod's volumes, for comparison."""
    by_pod: dict[str, set[object]] = {uid: set() for uid in uids}
    for (uid, name), wait in waits.items():
        by_pod[uid].add((name, wait.cause, wait.message))
    return {uid: frozenset(each) for uid, each in by_pod.items()}


def is_busy(waits: Mapping[str, Waits]) -> bool:
    """Whether an operation is in progress."""
    return any(wait.cause is WaitCause.BUSY for wait in waits.values())


# How a pod waits for its volumes: when events report it, and when the pod gives up.

_QUIET = frozenset({WaitCause.BUSY, WaitCause.BACKOFF, WaitCause.NOT_IN_USE_YET})
"""Causes that will resolve soon, or that events have already reported."""
OBJECT_CAUSES = frozenset(
    {
        WaitCause.UNREAD,
        WaitCause.CLAIM_MISSING,
        WaitCause.CLAIM_UNBOUND,
        WaitCause.PV_MISSING,
        WaitCause.PV_OF_ANOTHER,
        WaitCause.NOT_OWNED,
        WaitCause.NOT_ATTACHED,
        WaitCause.ATTACH_FAILED,
        WaitCause.ATTACH_LIMIT,
    }
)
"""Causes that end with the change of an object."""
ATTACH_PATIENCE_S = 10.0
"""How long a pod may wait for attachments before an event reports it: every pod waits briefly."""
LIMIT_PATIENCE_S = 123.0
"""How long a pod waits on a node that has reached its volume limit: another pod's volume may be
about to be detached. The same as the kubelet's wait for volumes in one sync.
"""


class VolumesWait(Exception):
    """A pod's claim-backed volumes are not all there.

    Attributes:
        waits: name of each volume -> what it waits for.
        reported: whether another event would add nothing, or would be premature.
        node_is_full: volumes that waited too long because the node has reached its limit.
    """

    def __init__(
        self, waits: Mapping[str, Waits], *, patient: bool = False, node_is_full: bool = False
    ) -> None:
        """``patient``: no wait for an attachment has been long."""
        super().__init__(
            "; ".join(f'volume "{name}": {claims.wait_text(w)}' for name, w in waits.items())
        )
        self.waits = waits
        quiet = _QUIET | {WaitCause.NOT_ATTACHED} if patient else _QUIET
        self.reported = all(wait.cause in quiet for wait in waits.values())
        limited = (name for name, wait in waits.items() if wait.cause is WaitCause.ATTACH_LIMIT)
        self.node_is_full = tuple(limited) if node_is_full else ()


class Patience:
    """Since when pods wait for attachments, and on full nodes. Times are passed in."""

    def __init__(self) -> None:
        self._attaching: dict[str, float] = {}
        self._full: dict[str, float] = {}

    def has(self, uid: str, missing: Mapping[str, Waits], now: float) -> bool:
        """Whether a pod's attachments may take a little longer."""
        waits = any(wait.cause is WaitCause.NOT_ATTACHED for wait in missing.values())
        return now - _begun(self._attaching, uid, now, waits=waits) < ATTACH_PATIENCE_S

    def ends(self, uid: str, now: float, *, full: bool) -> bool:
        """Whether a pod's wait on a node is over; ``full``: the node is at its volume limit."""
        return now - _begun(self._full, uid, now, waits=full) >= LIMIT_PATIENCE_S

    def forget(self, uid: str) -> None:
        """Forget a pod that no longer waits."""
        self._attaching.pop(uid, None)
        self._full.pop(uid, None)


def _begun(begun: dict[str, float], uid: str, now: float, *, waits: bool) -> float:
    if not waits:
        begun.pop(uid, None)
        return now
    return begun.setdefault(uid, now)
