"""Metrics of calls to CSI drivers. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import OPERATION_SECONDS

NO_ANSWER = "unknown-non-grpc"
_MIGRATED = ("false", "true")


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

    def called(
        self, driver: str, method: str, code: str, seconds: float, *, migrated: bool = False
    ) -> None:
        """A call ended; ``code`` is the gRPC name of its status.

        ``migrated``: the volume is of an in-tree kind that this driver has replaced.
        """
        path = f"/csi.v1.Node/{method}"
        self.operations.labels(driver, path, code, _MIGRATED[migrated]).observe(seconds)
