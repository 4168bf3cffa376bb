"""Metrics of the calls to CSI drivers. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import OPERATION_SECONDS

NO_ANSWER = "unknown-non-grpc"
_NOT_MIGRATED = "false"


class CsiMetrics:
    """How long drivers take."""

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

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """A call ended; ``code`` is gRPC's name of its status."""
        path = f"/csi.v1.Node/{method}"
        self.operations.labels(driver, path, code, _NOT_MIGRATED).observe(seconds)
