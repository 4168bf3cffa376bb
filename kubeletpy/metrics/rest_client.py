"""Metrics of requests to the Kubernetes API. Labels must never hold a path or a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from prometheus_client import Histogram

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.families import Families

CLIENT_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
SIZES = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
PROTOCOLS = ("HTTP/1.1", "HTTP/2")


class ConnectionUsage(Protocol):
    """kubeapi.usage.Usage: what is under way."""

    @property
    def protocols(self) -> Mapping[str, int]:
        """Open connections by protocol."""
        ...

    @property
    def streams(self) -> int:
        """Requests and watches."""
        ...

    @property
    def watches(self) -> int:
        """Watches alone."""
        ...


def _connections(usage: Callable[[], ConnectionUsage], protocol: str) -> int:
    return usage().protocols.get(protocol, 0)


class _Series(Struct, frozen=True):
    """The histograms of one method and host, looked up once: every request needs all four."""

    duration: Histogram
    held_back: Histogram
    sent: Histogram
    received: Histogram


class RestClientMetrics:
    """kubeapi.observer.RequestObserver on the registry.

    ``code`` is the HTTP status or "<error>", ``method`` and ``verb`` the HTTP method, ``host`` the
    API server's host and port as in its address.
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
        self.connections = families.gauge(
            "kubeletpy_api_connections",
            "Open connections to the Kubernetes API; over HTTP/1.1, those with a request.",
            "protocol",
        )
        self.requests_in_flight = families.gauge(
            "kubeletpy_api_requests_in_flight",
            "Requests to the Kubernetes API under way: watches, and all others.",
            "kind",
        )
        self.connections_lost = families.counter(
            "kubeletpy_api_connections_lost_total",
            "HTTP/2 connections to the Kubernetes API that broke, or that the server ended.",
        )
        self._series: dict[tuple[str, str], _Series] = {}

    def show(self, usage: Callable[[], ConnectionUsage]) -> None:
        """Have connections and requests under way read at each scrape."""
        for protocol in PROTOCOLS:
            of_one = partial(_connections, usage, protocol)
            self.connections.labels(protocol).set_function(of_one)
        in_flight = self.requests_in_flight
        in_flight.labels("watch").set_function(lambda: usage().watches)
        in_flight.labels("request").set_function(lambda: usage().streams - usage().watches)

    def connection_lost(self) -> None:
        """An HTTP/2 connection broke, or the server ended it."""
        self.connections_lost.inc()

    def tried(
        self, code: int | None, method: str, host: str, seconds: float, sent: int, *, again: bool
    ) -> None:
        """An attempt at a request ended with an HTTP status, or None if there was no response.

        ``sent``: bytes of its body; ``again``: it was not the first attempt at this request.
        """
        status = "<error>" if code is None else str(code)
        self.requests.labels(status, method, host).inc()
        if again:
            self.request_retries.labels(status, method, host).inc()
        series = self._series_of(method, host)
        series.duration.observe(seconds)
        series.sent.observe(sent)

    def held_back(self, method: str, host: str, seconds: float) -> None:
        """An attempt waited that long, often not at all, for our client-side rate limit."""
        self._series_of(method, host).held_back.observe(seconds)

    def answered(self, method: str, host: str, received: int) -> None:
        """A response had a body of that many bytes."""
        self._series_of(method, host).received.observe(received)

    def _series_of(self, method: str, host: str) -> _Series:
        found = self._series.get((method, host))
        if found is None:
            found = self._series[method, host] = _Series(
                self.request_duration.labels(method, host),
                self.rate_limiter_duration.labels(method, host),
                self.request_size.labels(method, host),
                self.response_size.labels(method, host),
            )
        return found
