"""Metrics of the agent's own HTTP server."""

from __future__ import annotations

from kubeletpy.metrics.families import Families

LABELS = ("method", "path", "server_type", "long_running")


class HttpMetrics:
    """``path``: a route's first part (metrics: two); ``server_type``: readwrite or readonly."""

    def __init__(self, families: Families) -> None:
        self.requests = families.bounded_counter(
            "kubelet_http_requests_total", "Requests to this server.", *LABELS
        )
        self.requests_duration = families.histogram(
            "kubelet_http_requests_duration_seconds", "Time that requests took.", *LABELS
        )
        self.inflight_requests = families.gauge(
            "kubelet_http_inflight_requests", "Requests under way.", *LABELS
        )
        self.websocket_streams = families.counter(
            "kubelet_websocket_streaming_requests_total",
            "Streams over WebSockets that the runtime does not speak itself.",
            "subresource",
        )
        self._provider = families.gauge(
            "kubelet_metrics_provider", "1 for what /metrics/cadvisor is made from.", "provider"
        )

    def metrics_come_from(self, provider: str) -> None:
        """Set the source of /metrics/cadvisor: ``cadvisor`` (cgroup files) or ``cri``."""
        self._provider.clear()
        self._provider.labels(provider).set(1)
