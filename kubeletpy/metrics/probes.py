"""Metrics of probes and lifecycle hooks. Numbers only."""

from __future__ import annotations

from collections import Counter as Count
from contextlib import suppress

from prometheus_client import Counter, Histogram

from kubeletpy.metrics.families import Families

RESULTS = ("successful", "failed", "unknown")


class ProbeMetrics:
    """Probe runs by container; in a registry of their own, as they are many (``/metrics/probes``).

    The series of a probe are removed with it, so there are never more than for the node's probes.
    """

    def __init__(self, families: Families) -> None:
        self.probes = families.counter(
            "prober_probe_total",
            "Probe runs by result: successful, failed or unknown.",
            "probe_type",
            "result",
            "container",
            "pod",
            "namespace",
            "pod_uid",
        )
        self.duration = families.histogram(
            "prober_probe_duration_seconds",
            "Time that probes took that did not fail.",
            "probe_type",
            "container",
            "pod",
            "namespace",
        )
        self._sharing: Count[tuple[str, ...]] = Count()
        self._known: set[tuple[str, ...]] = set()

    def probed(self, target: tuple[str, ...], result: str, seconds: float) -> None:
        """A run ended; ``target`` is (type, container, pod, namespace, uid)."""
        if target not in self._known:
            self._known.add(target)
            self._sharing[target[:4]] += 1
        self.probes.labels(target[0], result, *target[1:]).inc()
        if result != "failed":
            self.duration.labels(*target[:4]).observe(seconds)

    def gone(self, target: tuple[str, ...]) -> None:
        """A probe was removed. A later pod of the same name keeps the series that they share."""
        if target not in self._known:
            return
        self._known.discard(target)
        for result in RESULTS:
            _remove(self.probes, target[0], result, *target[1:])
        self._sharing[target[:4]] -= 1
        if not self._sharing[target[:4]]:
            del self._sharing[target[:4]]
            _remove(self.duration, *target[:4])


class HookMetrics:
    """Lifecycle hooks."""

    def __init__(self, families: Families) -> None:
        self.http_fallbacks = families.counter(
            "kubelet_lifecycle_handler_http_fallbacks_total",
            "https hooks that were answered in the clear and worked over http.",
        )
        self.sleeps_cut_short = families.counter(
            "kubelet_sleep_action_terminated_early_total",
            "sleep hooks that were given up before their time was over.",
        )


def _remove(family: Counter | Histogram, *labels: str) -> None:
    """Remove a series if it exists: older versions of the library raise KeyError if it doesn't."""
    with suppress(KeyError):
        family.remove(*labels)
