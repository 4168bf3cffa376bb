"""How a pod waits for its claim-backed volumes: when events report it, and when it gives up.

Pure: time is passed in. Source: docs/reference/behaviour-storage.md, se5, ss.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.volumes.claims.model import WaitCause, Waits, wait_text

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
        super().__init__("; ".join(f'volume "{name}": {wait_text(w)}' for name, w in waits.items()))
        self.waits = waits
        quiet = _QUIET | {WaitCause.NOT_ATTACHED} if patient else _QUIET
        self.reported = all(wait.cause in quiet for wait in waits.values())
        limited = (name for name, wait in waits.items() if wait.cause is WaitCause.ATTACH_LIMIT)
        self.node_is_full = tuple(limited) if node_is_full else ()


class Patience:
    """Since when pods wait for attachments, and on full nodes."""

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
