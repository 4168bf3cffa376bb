"""When failed operations may be retried. Pure.

Source: docs/reference/behaviour-storage.md, sd2; kubernetes/kubelet 39.
"""

from __future__ import annotations

from kubeletpy.base.host.errors import machine_fault
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.operations.model import Failure, Key, OperationKind

FIRST_MS = 500
LAST_MS = 122_000

Tried = tuple[OperationKind, Key]


class Backoffs:
    """Failures of operations, by operation and its key."""

    def __init__(self) -> None:
        self.failures: dict[Tried, Failure] = {}
        self._drivers: dict[Tried, str] = {}

    def ended(self, kind: OperationKind, key: Key) -> Failure | None:
        """An operation ended, which resets the back-off of others; returns its previous failure."""
        before = self.failures.get((kind, key))
        for each in OperationKind:
            self.failures.pop((each, key), None)
            self._drivers.pop((each, key), None)
        return before

    def failed(self, tried: Tried, error: OperationFailed, driver: str, now: float) -> None:
        """An operation ended and failed; ``now`` is event-loop time."""
        before = self.ended(*tried)
        count = before.count if before is not None else 0
        since = before.at if before is not None else now
        wait = min(FIRST_MS << count, LAST_MS) / 1000
        fault = machine_fault(error)
        self.failures[tried] = Failure(
            error.message, error.call, count + 1, now + wait, since, fault
        )
        self._drivers[tried] = driver

    def driver_changed(self, driver: str) -> None:
        """Allow immediate retries of a driver's failures (empty: any driver's)."""
        for tried, of in list(self._drivers.items()):
            if not driver or of == driver:
                self.failures.pop(tried, None)
                self._drivers.pop(tried)

    def of_unpublish(self, uid: str) -> Failure | None:
        """Why a pod's volume could not be unpublished."""
        for (kind, (_, of)), failure in self.failures.items():
            if kind is OperationKind.UNPUBLISH and of == uid:
                return failure
        return None
