"""Metrics of the node and its agent: startup, certificates, process, health, servers, API clients.

Source: docs/reference/metrics.csv. Labels must never hold a path of a request or an object's name.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate, repeat
from operator import mul
from typing import Protocol

from prometheus_client import Histogram, ProcessCollector

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.families import Families


class NodeMetrics:
    """Metrics of the node and of its startup."""

    def __init__(self, families: Families) -> None:
        self.node_name = families.gauge(
            "kubelet_node_name", "Always 1; the label is the node's name.", "node"
        )
        self.object_exists = families.gauge(
            "kubeletpy_node_object_exists",
            "1 if the API has the Node object; 0 if it was deleted, or is not registered yet.",
        )
        self.shutdown_start = families.gauge(
            "kubelet_graceful_shutdown_start_time_seconds",
            "When the last graceful shutdown of the node began, in Unix seconds.",
        )
        self.shutdown_end = families.gauge(
            "kubelet_graceful_shutdown_end_time_seconds",
            "When the last graceful shutdown of the node ended, in Unix seconds.",
        )
        self.cgroup_version = families.gauge(
            "kubelet_cgroup_version", "Version of the cgroup hierarchy in use, 1 or 2."
        )
        self.cgroup_manager_duration = families.histogram(
            "kubelet_cgroup_manager_duration_seconds",
            "Time that work on cgroups took: create, update, destroy.",
            "operation_type",
        )
        self.memory_min = families.gauge(
            "kubelet_memory_qos_node_memory_min_bytes",
            "Memory that is kept for Guaranteed pods (MemoryQoS).",
        )
        self.memory_low = families.gauge(
            "kubelet_memory_qos_node_memory_low_bytes",
            "Memory that is taken last from Burstable pods (MemoryQoS).",
        )
        self.startup_pre_kubelet_duration = families.gauge(
            "kubelet_node_startup_pre_kubelet_duration_seconds",
            "Time from the machine's boot to the start of this process.",
        )
        self.startup_pre_registration_duration = families.gauge(
            "kubelet_node_startup_pre_registration_duration_seconds",
            "Time from the start of this process to the first try to register.",
        )
        self.startup_registration_duration = families.gauge(
            "kubelet_node_startup_registration_duration_seconds",
            "Time from the first try to register to success.",
        )
        self.startup_post_registration_duration = families.gauge(
            "kubelet_node_startup_post_registration_duration_seconds",
            "Time from registration to the node's Ready.",
        )
        self.startup_duration = families.gauge(
            "kubelet_node_startup_duration_seconds",
            "Time from the machine's boot to the node's Ready.",
        )

    def registered(
        self, pre_kubelet: float | None, pre_registration: float, registration: float
    ) -> None:
        """The node is registered with the API; None: the boot time of the machine is unknown."""
        if pre_kubelet is not None:
            self.startup_pre_kubelet_duration.set(pre_kubelet)
        self.startup_pre_registration_duration.set(pre_registration)
        self.startup_registration_duration.set(registration)

    def ready(self, post_registration: float, whole: float | None) -> None:
        """The registered node is Ready."""
        self.startup_post_registration_duration.set(post_registration)
        if whole is not None:
            self.startup_duration.set(whole)

    def shutdown_observed(self, what: str, at: float) -> None:
        """Set the "start" or "end" of a graceful shutdown, in Unix seconds."""
        (self.shutdown_start if what == "start" else self.shutdown_end).set(at)


LIFETIMES = (
    *(60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000),
    124416000,
)
"""Seconds: a minute to four years."""


class CertificateMetrics:
    """Lifetime, renewals and failures of both certificates; without one its TTL is +Inf."""

    def __init__(self, families: Families) -> None:
        self.client_ttl = families.gauge(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Time until the client certificate ends; negative when it has, +Inf without one.",
        )
        self.client_renew_errors = families.counter(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Failures to renew the client certificate.",
        )
        self.server_ttl = families.gauge(
            "kubelet_certificate_manager_server_ttl_seconds",
            "Time until the serving certificate ends; negative when it has, +Inf without one.",
        )
        self.server_rotation = families.histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "How long the previous serving certificate was in use when it was replaced.",
            buckets=LIFETIMES,
        )
        self.server_renew_errors = families.counter(
            "kubelet_server_expiration_renew_errors",
            "Failures to renew the serving certificate.",
        )
        self.client_ttl.set(math.inf)
        self.server_ttl.set(math.inf)


BUILD_LABELS = (
    *("major", "minor", "git_version", "git_commit", "git_tree_state", "build_date"),
    *("go_version", "compiler", "platform"),
)


class ProcessMetrics:
    """Build and feature gates; process_* (start time, CPU, memory, files) are read at a scrape."""

    def __init__(self, families: Families) -> None:
        self.build_info = families.gauge(
            "kubernetes_build_info", "Always 1; the labels identify the build.", *BUILD_LABELS
        )
        self.feature_enabled = families.gauge(
            "kubernetes_feature_enabled", "1 for feature gates that are on.", "name", "stage"
        )
        self.longest_turn = families.gauge(
            "kubeletpy_event_loop_longest_turn_seconds",
            "Longest time that the event loop answered nobody, since the scrape before this one.",
        )
        self.stalls = families.counter(
            "kubeletpy_event_loop_stalls_total",
            "Times that the event loop answered nobody for a quarter of a second or more.",
        )
        ProcessCollector(registry=families.registry)

    def set_build(self, git_version: str) -> None:
        """Set the build info; ``git_version`` is the kubeletVersion that the node reports."""
        major, _, rest = git_version.removeprefix("v").partition(".")
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
        labels = {
            "major": major,
            "minor": rest.partition(".")[0],
            "git_version": git_version,
            "git_commit": "",
            "git_tree_state": "",
            "build_date": "",
            "go_version": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{platform.system().lower()}/{machine or platform.machine()}",
        }
        self.build_info.clear()
        self.build_info.labels(**labels).set(1)

    def set_features(self, gates: Mapping[str, tuple[str, bool]]) -> None:
        """Set the feature gates: name -> (stage: GA, Beta, Alpha or Deprecated; enabled)."""
        for name, (stage, enabled) in gates.items():
            label = "" if stage == "GA" else stage.upper()
            self.feature_enabled.labels(name, label).set(1 if enabled else 0)


def show_start(families: Families) -> None:
    """Make families with an endpoint of their own report the process start time, too."""
    started = families.gauge("process_start_time_seconds", "Start of the process, Unix seconds.")
    found = ProcessCollector(registry=None).collect()
    at = next((m.samples[0].value for m in found if m.name == "process_start_time_seconds"), None)
    if at is not None:
        started.set(at)


OPERATION_SECONDS = tuple(accumulate(repeat(2.5, 13), mul, initial=0.005))
"""14 buckets from 5 ms up, each 2.5 times the previous, multiplied in the kubelet's order."""


class RuntimeMetrics:
    """Calls to the container runtime, by operation: remote.calls.CallMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self._next = families.version.next_release
        self.operations = families.counter(
            "kubelet_runtime_operations_total",
            "CRI calls by operation.",
            "operation_type",
        )
        self.operations_duration = families.histogram(
            "kubelet_runtime_operations_duration_seconds",
            "Time that CRI calls took, by operation.",
            "operation_type",
            buckets=OPERATION_SECONDS,
        )
        self.operations_errors = families.counter(
            "kubelet_runtime_operations_errors_total",
            "CRI calls that failed, by operation.",
            "operation_type",
        )
        self.run_podsandbox_duration = families.histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Time that RunPodSandbox took, by the RuntimeClass' handler.",
            "runtime_handler",
        )
        self.run_podsandbox_errors = families.counter(
            "kubelet_run_podsandbox_errors_total",
            "RunPodSandbox calls that failed, by the RuntimeClass' handler.",
            "runtime_handler",
        )
        self.cri_losing_support = families.gauge(
            "kubelet_cri_losing_support",
            "1 when a coming Kubernetes version will not support this runtime any more.",
            "version",
        )

    def losing_support(self) -> None:
        """The runtime lacks RuntimeConfig, which kubelets need from the next minor version on.

        So each version announces it: KEP-4033 was put off several times. Source:
        docs/reference/metrics.csv: kubelet_cri_losing_support.
        """
        self.cri_losing_support.labels(self._next).set(1)

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        """A CRI call ended."""
        self.operations.labels(operation).inc()
        self.operations_duration.labels(operation).observe(seconds)
        if failed:
            self.operations_errors.labels(operation).inc()

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        """Count a RunPodSandbox call that has ended."""
        self.run_podsandbox_duration.labels(runtime_handler).observe(seconds)
        if failed:
            self.run_podsandbox_errors.labels(runtime_handler).inc()


TYPE = "healthz"


class HealthMetrics:
    """Counts runs and results of each health check, for /metrics/slis."""

    def __init__(self, families: Families) -> None:
        self.healthy = families.gauge(
            "kubernetes_healthcheck", "1 if the check passed when it last ran.", "type", "name"
        )
        self.runs = families.counter(
            "kubernetes_healthchecks_total", "Runs of the check.", "type", "name", "status"
        )
        self._checks: dict[str, Callable[[], str]] = {}

    def counted(self, checks: Mapping[str, Callable[[], str]]) -> dict[str, Callable[[], str]]:
        """The same checks (empty text: healthy), counting each run."""
        found = {name: self._counted(name, check) for name, check in checks.items()}
        self._checks |= found
        return found

    def run(self) -> None:
        """Run all checks, so that a scrape shows their current state."""
        for check in self._checks.values():
            check()

    def _counted(self, name: str, check: Callable[[], str]) -> Callable[[], str]:
        def run() -> str:
            problem = check()
            self.healthy.labels(TYPE, name).set(0 if problem else 1)
            self.runs.labels(TYPE, name, "error" if problem else "success").inc()
            return problem

        return run


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


_LABELS = ("server_api_version", "status_code")


class PodsApiMetrics:
    """Calls of the pods API by version and status, and watchers that were cut off."""

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
        """The number of requests and watches under way."""
        ...

    @property
    def watches(self) -> int:
        """The number of watches among them."""
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
