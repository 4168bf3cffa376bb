"""Metrics of the pod lifecycle event generator: relists and the runtime's event stream."""

from __future__ import annotations

from kubeletpy.metrics.families import Families


class PlegMetrics:
    """How fresh the agent's picture of the runtime is."""

    def __init__(self, families: Families) -> None:
        self.relist_duration = families.histogram(
            "kubelet_pleg_relist_duration_seconds", "Time that a full relist took."
        )
        self.relist_interval = families.histogram(
            "kubelet_pleg_relist_interval_seconds", "Time between two full relists."
        )
        self.pod_relist_duration = families.histogram(
            "kubelet_pleg_pod_relist_duration_seconds", "Time that the relist of one pod took."
        )
        self.discard_events = families.counter(
            "kubelet_pleg_discard_events", "Events dropped because nobody took them in time."
        )
        self.last_seen = families.gauge(
            "kubelet_pleg_last_seen_seconds", "Unix time of the last relist."
        )
        self.evented_connection_errors = families.counter(
            "kubelet_evented_pleg_connection_error_count",
            "Failed connects to the runtime's event stream.",
        )
        self.evented_connection_successes = families.counter(
            "kubelet_evented_pleg_connection_success_count",
            "Connects to the runtime's event stream.",
        )
        self.evented_latency = families.histogram(
            "kubelet_evented_pleg_connection_latency_seconds",
            "Time from a runtime's event to its arrival here.",
        )

    def relist_done(self, seconds: float, interval: float | None, unix_time: float) -> None:
        """A full relist, ``interval`` after the previous one, took ``seconds`` and ends now."""
        self.relist_duration.observe(seconds)
        if interval is not None:
            self.relist_interval.observe(interval)
        self.last_seen.set(unix_time)

    def pod_relist_done(self, seconds: float) -> None:
        """One pod was relisted."""
        self.pod_relist_duration.observe(seconds)

    def stream_connected(self) -> None:
        """The runtime's event stream is open."""
        self.evented_connection_successes.inc()

    def stream_failed(self) -> None:
        """The runtime's event stream could not be opened, or broke."""
        self.evented_connection_errors.inc()

    def event_received(self, latency: float) -> None:
        """An event arrived ``latency`` seconds after the runtime created it."""
        self.evented_latency.observe(latency)
