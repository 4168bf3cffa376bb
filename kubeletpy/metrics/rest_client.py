"""Metrics of requests to the Kubernetes API. Labels must never hold a path or a name."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Histogram

from kubeletpy.metrics.families import Families

CLIENT_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZES = (*(64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),)


@dataclass(frozen=True, slots=True)
class _Series:
    """The histograms of one method at one host: looked up once, for every request has four."""

    duration: Histogram
    held_back: Histogram
    sent: Histogram
    received: Histogram


class RestClientMetrics:
    """kubeapi.observer.RequestObserver on the registry.

    ``code`` is the HTTP status or "<error>", ``method`` and ``verb`` the HTTP method, ``host`` the
    API server's host and port as its address has them.
    """

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

        self._series: dict[tuple[str, str], _Series] = {}

    def tried(
        self, code: int | None, method: str, host: str, seconds: float, sent: int, *, again: bool
    ) -> None:
        """A try of a request ended with an HTTP status, or None when there was no answer.

        ``sent``: bytes of its body; ``again``: it was not the first try of this request.
        """
        status = "<error>" if code is None else str(code)
        self.requests.labels(status, method, host).inc()
        if again:
            self.request_retries.labels(status, method, host).inc()
        series = self._of(method, host)
        series.duration.observe(seconds)
        series.sent.observe(sent)

    def held_back(self, method: str, host: str, seconds: float) -> None:
        """A try waited so long, often not at all, for its turn under our own rate limit."""
        self._of(method, host).held_back.observe(seconds)

    def answered(self, method: str, host: str, received: int) -> None:
        """An answer has a body of so many bytes, as it is read."""
        self._of(method, host).received.observe(received)

    def _of(self, method: str, host: str) -> _Series:
        found = self._series.get((method, host))
        if found is None:
            found = self._series[method, host] = _Series(
                self.request_duration.labels(method, host),
                self.rate_limiter_duration.labels(method, host),
                self.request_size.labels(method, host),
                self.response_size.labels(method, host),
            )
        return found
