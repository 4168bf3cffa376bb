"""Metrics of the node and its agent: startup, certificates, process, health, servers, API clients.

Source: docs/reference/metrics.csv. Labels must never hold a path of a request or an object's name.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client.metrics import Histogram
from prometheus_client.process_collector import ProcessCollector

from kubeletpy.base.host.machine import architecture
from kubeletpy.base.structs import Struct
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.generated import declared


class NodeMetrics(declared.NodeFamilies):
    """Metrics of the node and of its startup."""

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


class CertificateMetrics(declared.CertificatesFamilies):
    """Lifetime, renewals and failures of both certificates; without one its TTL is +Inf."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self.client_ttl.set(math.inf)
        self.server_ttl.set(math.inf)


class ProcessMetrics(declared.ProcessFamilies):
    """Build and feature gates; process_* (start time, CPU, memory, files) are read at a scrape."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._features: Mapping[str, tuple[str, bool]] = {}
        ProcessCollector(registry=families.registry)

    def set_build(self, git_version: str) -> None:
        """Set the build info; ``git_version`` is the kubeletVersion that the node reports."""
        major, _, rest = git_version.removeprefix("v").partition(".")
        labels = {
            "major": major,
            "minor": rest.partition(".")[0],
            "git_version": git_version,
            "git_commit": "",
            "git_tree_state": "",
            "build_date": "",
            "go_version": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{platform.system().lower()}/{architecture()}",
        }
        self.build_info.clear()
        self.build_info.labels(**labels).set(1)

    def set_features(self, gates: Mapping[str, tuple[str, bool]]) -> None:
        """Set the feature gates: name -> (stage: GA, Beta, Alpha or Deprecated; enabled)."""
        self._features = gates

    def show_features(self) -> None:
        """Make the series of the feature gates: 2 ms that only a scrape needs."""
        for name, (stage, enabled) in self._features.items():
            label = "" if stage == "GA" else stage.upper()
            self.feature_enabled.labels(name, label).set(1 if enabled else 0)
        self._features = {}


def show_start(families: Families) -> None:
    """Make families with an endpoint of their own report the process start time, too."""
    started = families.gauge("process_start_time_seconds", "Start of the process, Unix seconds.")
    found = ProcessCollector(registry=None).collect()
    at = next((m.samples[0].value for m in found if m.name == "process_start_time_seconds"), None)
    if at is not None:
        started.set(at)


class RuntimeMetrics(declared.RuntimeFamilies):
    """Calls to the container runtime, by operation: remote.calls.CallMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._next = families.version.next_release

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


class HealthMetrics(declared.HealthFamilies):
    """Counts runs and results of each health check, for /metrics/slis."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
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
            self.healthy.labels(name, TYPE).set(0 if problem else 1)
            self.runs.labels(name, TYPE, "error" if problem else "success").inc()
            return problem

        return run


class HttpMetrics(declared.HttpFamilies):
    """``path``: a route's first part (metrics: two); ``server_type``: readwrite or readonly."""

    def metrics_come_from(self, provider: str) -> None:
        """Set the source of /metrics/cadvisor: ``cadvisor`` (cgroup files) or ``cri``."""
        self.provider.clear()
        self.provider.labels(provider).set(1)


class PodsApiMetrics(declared.PodsApiFamilies):
    """Calls of the pods API by version and status, and watchers that were cut off."""

    def ended(self, version: str, method: str, code: str) -> None:
        """A call has ended; ``code`` as gRPC in Go spells it."""
        self.total.labels(version, code).inc()
        self.methods[method].labels(version, code).inc()


PROTOCOLS = ("HTTP/1.1", "HTTP/2")


class _Series(Struct, frozen=True):
    """The histograms of one method and host, looked up once: every request needs all four."""

    duration: Histogram
    held_back: Histogram
    sent: Histogram
    received: Histogram


class RestClientMetrics(declared.RestClientFamilies):
    """Requests and connections to the Kubernetes API.

    ``code`` is the HTTP status or "<error>", ``method`` and ``verb`` the HTTP method, ``host`` the
    API server's host and port as in its address.
    """

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._series: dict[tuple[str, str], _Series] = {}

    def show(
        self,
        connections: Callable[[str], int],
        watches: Callable[[], int],
        streams: Callable[[], int],
    ) -> None:
        """Have connections by protocol, and watches and all requests under way, read at each
        scrape."""
        for protocol in PROTOCOLS:
            self.connections.labels(protocol).set_function(partial(connections, protocol))
        in_flight = self.requests_in_flight
        in_flight.labels("watch").set_function(watches)
        in_flight.labels("request").set_function(lambda: streams() - watches())

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
