"""Metrics of the pods API. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from kubeletpy.metrics.families import Families

_LABELS = ("server_api_version", "status_code")


class PodsApiMetrics:
    """Calls by API version and status, and watchers that were cut off."""

    def __init__(self, families: Families) -> None:
        self.total = families.counter(
            "kubelet_pod_requests_total", "Calls of the pods API.", *_LABELS
        )
        self.list = families.counter(
            "kubelet_pod_requests_list_total", "ListPods calls of the pods API.", *_LABELS
        )
        self.get = families.counter(
            "kubelet_pod_requests_get_total", "GetPod calls of the pods API.", *_LABELS
        )
        self.watch = families.counter(
            "kubelet_pod_requests_watch_total",
            "WatchPods calls of the pods API that have ended.",
            *_LABELS,
        )
        self.dropped = families.counter(
            "kubelet_pod_watch_events_dropped_total",
            "Events that were not delivered because a watcher did not read them.",
        )
        self._methods = {"ListPods": self.list, "GetPod": self.get, "WatchPods": self.watch}

    def ended(self, version: str, method: str, code: str) -> None:
        """A call has ended; ``code`` as gRPC in Go spells it."""
        self.total.labels(version, code).inc()
        self._methods[method].labels(version, code).inc()
