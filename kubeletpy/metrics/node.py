"""Metrics of the node: its name, its cgroups, the steps of its startup."""

from __future__ import annotations

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
