"""Metrics of calls to CSI drivers. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import MIGRATED, OPERATION_SECONDS

NO_ANSWER = "unknown-non-grpc"


class CsiMetrics:
    """How long CSI calls take."""

    def __init__(self, families: Families) -> None:
        self.operations = families.histogram(
            "csi_operations_seconds",
            "Time that a call to a CSI driver took.",
            "driver_name",
            "method_name",
            "grpc_status_code",
            "migrated",
            buckets=OPERATION_SECONDS,
        )
        self.storage_health = families.gauge(
            "csi_node_storage_health_status",
            "Conditions of storage that its driver reports on this node (1: it is reported).",
            "driver_name",
            "status",
            "reason",
        )
        self._conditions: dict[str, set[tuple[str, str]]] = {}

    def called(
        self, driver: str, method: str, code: str, seconds: float, *, migrated: bool = False
    ) -> None:
        """A call ended; ``code`` is the gRPC name of its status.

        ``migrated``: the volume is of an in-tree kind that this driver has replaced.
        """
        path = f"/csi.v1.Node/{method}"
        self.operations.labels(driver, path, code, MIGRATED[migrated]).observe(seconds)

    def storage_reported(self, driver: str, conditions: Iterable[tuple[str, str]]) -> None:
        """The storage of a driver has these conditions (status, reason), and no others."""
        before, now = self._conditions.pop(driver, set()), set(conditions)
        for status, reason in before - now:
            self.storage_health.remove(driver, status, reason)
        for status, reason in now:
            self.storage_health.labels(driver, status, reason).set(1)
        if now:
            self._conditions[driver] = now

    def storage_unknown(self, registered: Collection[str]) -> None:
        """Drivers other than these are not registered any more."""
        for driver in self._conditions.keys() - set(registered):
            self.storage_reported(driver, ())
