"""Metrics of requests to the Kubernetes API. Labels must never hold a path or a name."""

from __future__ import annotations

from kubeletpy.metrics.families import Families

CLIENT_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZES = (*(64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),)


class RestClientMetrics:
    """``code`` is the HTTP status or "<error>", ``method`` and ``verb`` the HTTP method."""

    def __init__(self, families: Families) -> None:
        self.requests = families.counter(
            "rest_client_requests_total",
            "Requests to the Kubernetes API by status code, method and host.",
            "code",
            "method",
            "host",
        )
        self.request_duration = families.histogram(
            "rest_client_request_duration_seconds",
            "Time that requests to the Kubernetes API took.",
            "verb",
            "host",
            buckets=CLIENT_SECONDS,
        )
        self.rate_limiter_duration = families.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Time that requests waited for our own rate limit.",
            "verb",
            "host",
            buckets=CLIENT_SECONDS,
        )
        self.request_size = families.histogram(
            "rest_client_request_size_bytes",
            "Sizes of requests to the Kubernetes API.",
            "verb",
            "host",
            buckets=SIZES,
        )
        self.response_size = families.histogram(
            "rest_client_response_size_bytes",
            "Sizes of responses of the Kubernetes API.",
            "verb",
            "host",
            buckets=SIZES,
        )
        self.request_retries = families.counter(
            "rest_client_request_retries_total",
            "Requests made again.",
            "code",
            "verb",
            "host",
        )

    def request_done(self, code: int | None, method: str, host: str, seconds: float) -> None:
        """A request ended with an HTTP status, or None when there was no answer."""
        self.requests.labels("<error>" if code is None else str(code), method, host).inc()
        self.request_duration.labels(method, host).observe(seconds)
