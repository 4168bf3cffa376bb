"""Metrics of resource claims and their drivers. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.metrics.families import Families

SECONDS = tuple(round(0.1 * 400 ** (index / 14), 6) for index in range(15))
"""15 buckets from 0.1 s to 40 s, in a geometric series."""
ANY = "<any>"


class DraMetrics:
    """How long claims take, and how many are in use."""

    def __init__(self, families: Families) -> None:
        self.operations = families.histogram(
            "dra_operations_duration_seconds",
            "Time that preparing or giving back the claims of a pod took.",
            "operation_name",
            "is_error",
            buckets=SECONDS,
        )
        self.calls = families.histogram(
            "dra_grpc_operations_duration_seconds",
            "Time that a call to a DRA driver took.",
            "driver_name",
            "method_name",
            "grpc_status_code",
            buckets=SECONDS,
        )
        self.in_use = families.gauge(
            "dra_resource_claims_in_use",
            "Claims that pods of this node use, by driver.",
            "driver_name",
        )

        self.prepare_skips = families.counter(
            "dra_node_prepare_skips_total",
            "NodePrepareResources calls that allocations exempt a driver from.",
            "driver_name",
        )
        self.unprepare_skips = families.counter(
            "dra_node_unprepare_skips_total",
            "NodeUnprepareResources calls that allocations exempt a driver from.",
            "driver_name",
        )

    def skipped_prepare(self, drivers: Iterable[str]) -> None:
        """These drivers were not called, each for one claim."""
        for driver in drivers:
            self.prepare_skips.labels(driver).inc()

    def skipped_unprepare(self, drivers: Iterable[str]) -> None:
        """These drivers were not called, each for one claim."""
        for driver in drivers:
            self.unprepare_skips.labels(driver).inc()

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """A call ended; ``method`` is its full name, ``code`` the gRPC name of its status."""
        self.calls.labels(driver, method, code).observe(seconds)

    def operated(self, operation: str, seconds: float, *, failed: bool) -> None:
        """``PrepareResources`` or ``UnprepareResources`` of a pod ended."""
        self.operations.labels(operation, str(failed).lower()).observe(seconds)

    def show(self, claims: Mapping[str, int], total: int) -> None:
        """Set how many claims are in use, by driver and in total."""
        self.in_use.clear()
        for driver, count in {ANY: total, **claims}.items():
            self.in_use.labels(driver).set(count)
