"""The kinds of metrics the agent uses, on one registry of its own.

Names match the kubelet's: some of its counters lack the ``_total`` that the client library insists
on. Must never touch the library's global registry: several agents may live in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric

MAX_SERIES = 500
"""Most series of a counter with labels from outside; any further ones count as "other"."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Prometheus' default buckets."""

POD_START_SECONDS = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600),
    *(900, 1200, 1800, 2700, 3600),
)


_STABILITY = {
    "BETA": (
        "kubelet_image_volume_mounted_errors_total",
        "kubelet_image_volume_mounted_succeed_total",
        "kubelet_image_volume_requested_total",
        "kubernetes_build_info",
        "kubernetes_feature_enabled",
        "prober_probe_total",
    ),
    "INTERNAL": ("kubelet_first_network_pod_start_sli_duration_seconds",),
    "STABLE": ("kubernetes_healthcheck", "kubernetes_healthchecks_total"),
}
_STABILITY_OF = {name: level for level, names in _STABILITY.items() for name in names}


def with_stability(name: str, help: str) -> str:
    """A help text that begins with the metric's stability level, as the kubelet's does."""
    return f"[{_STABILITY_OF.get(name, 'ALPHA')}] {help}"


class PlainCounter(Counter):
    """A counter that is scraped under its bare name, as some of the kubelet's are."""

    def collect(self) -> Iterable[Metric]:
        """The metric with its samples renamed."""
        for metric in super().collect():
            total = f"{metric.name}_total"
            metric.samples = [
                sample._replace(name=metric.name)
                for sample in metric.samples
                if sample.name == total
            ]
            yield metric


class BoundedCounter(Counter):
    """A counter whose label values come from pods or the runtime: its series are bounded."""

    def labels(self, *labelvalues: Any, **labelkwargs: Any) -> Self:
        """The series of these values, or the one named "other" once there are MAX_SERIES."""
        key = tuple(str(value) for value in labelvalues)
        if len(self._metrics) >= MAX_SERIES and key not in self._metrics:
            return super().labels(*("other" for _ in self._labelnames))
        return super().labels(*labelvalues, **labelkwargs)


class Families:
    """Makes metrics on one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """A counter; ``name`` ends in _total."""
        return Counter(name, with_stability(name, help), labels, registry=self.registry)

    def plain_counter(self, name: str, help: str, *labels: str) -> Counter:
        """A counter whose name does not end in _total."""
        return PlainCounter(name, with_stability(name, help), labels, registry=self.registry)

    def bounded_counter(self, name: str, help: str, *labels: str) -> Counter:
        """A counter with labels from outside."""
        return BoundedCounter(name, with_stability(name, help), labels, registry=self.registry)

    def gauge(self, name: str, help: str, *labels: str) -> Gauge:
        """A gauge."""
        return Gauge(name, with_stability(name, help), labels, registry=self.registry)

    def histogram(
        self, name: str, help: str, *labels: str, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A histogram."""
        return Histogram(
            name, with_stability(name, help), labels, registry=self.registry, buckets=buckets
        )
