"""Metrics of calls to the container runtime. Must never depend on what a call means."""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import mul

from kubeletpy.metrics.families import Families

OPERATION_SECONDS = tuple(accumulate(repeat(2.5, 13), mul, initial=0.005))
"""14 buckets from 5 ms up, each 2.5 times the previous, multiplied in the kubelet's order."""


class RuntimeMetrics:
    """remote.calls.CallMetrics on the registry."""

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
        """A RunPodSandbox ended."""
        self.run_podsandbox_duration.labels(runtime_handler).observe(seconds)
        if failed:
            self.run_podsandbox_errors.labels(runtime_handler).inc()
