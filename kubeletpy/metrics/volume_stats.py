"""How full the volumes of claims are: one series per claim. Numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.families import SECONDS, Families

_GAUGES = {
    "capacity_bytes": "Bytes that the volume has.",
    "available_bytes": "Bytes that are left in the volume.",
    "used_bytes": "Bytes that are used in the volume.",
    "inodes": "Inodes that the volume has.",
    "inodes_free": "Inodes that are left in the volume.",
    "inodes_used": "Inodes that are used in the volume.",
    "health_status_abnormal": "Whether the volume's driver reports it as unhealthy (0 or 1).",
}


class ClaimNumbers(Struct, frozen=True):
    """Measurements of the volume of one claim; missing numbers are unknown."""

    namespace: str
    name: str
    numbers: Mapping[str, int]
    """Values by name of the gauge, without ``kubelet_volume_stats_``."""


class VolumeStatsMetrics:
    """``kubelet_volume_stats_*``, and how long measuring takes."""

    def __init__(self, families: Families) -> None:
        labels = ("namespace", "persistentvolumeclaim")
        self._gauges = {
            name: families.gauge(f"kubelet_volume_stats_{name}", text, *labels)
            for name, text in _GAUGES.items()
        }
        self._shown: set[tuple[str, str, str]] = set()
        self._seconds = families.histogram(
            "kubelet_volume_metric_collection_duration_seconds",
            "Time that measuring one volume took.",
            "metric_source",
            buckets=SECONDS,
        )

    def took(self, source: str, seconds: float) -> None:
        """One volume was measured."""
        self._seconds.labels(source).observe(seconds)

    def show(self, claims: Iterable[ClaimNumbers]) -> None:
        """Show what is known now; of two entries for the same claim the first counts."""
        numbers: dict[tuple[str, str, str], int] = {}
        seen = set()
        for claim in claims:
            of = (claim.namespace, claim.name)
            if of not in seen:
                numbers |= {(name, *of): number for name, number in claim.numbers.items()}
            seen.add(of)
        for name, *labels in self._shown - numbers.keys():
            self._gauges[name].remove(*labels)
        for (name, *labels), number in numbers.items():
            self._gauges[name].labels(*labels).set(number)
        self._shown = set(numbers)
