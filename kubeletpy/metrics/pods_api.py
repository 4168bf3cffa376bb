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
        self._methods = {
            method: families.counter(f"kubelet_pod_requests_{name}_total", text, *_LABELS)
            for method, name, text in (
                ("ListPods", "list", "ListPods calls of the pods API."),
                ("GetPod", "get", "GetPod calls of the pods API."),
                ("WatchPods", "watch", "WatchPods calls of the pods API that have ended."),
            )
        }
        self.dropped = families.counter(
            "kubelet_pod_watch_events_dropped_total",
            "Events that were not delivered because a watcher did not read them.",
        )

    def ended(self, version: str, method: str, code: str) -> None:
        """A call has ended; ``code`` as gRPC in Go spells it."""
        self.total.labels(version, code).inc()
        self._methods[method].labels(version, code).inc()
