"""Metrics of what pods get of the machine: CPUs, memory, NUMA nodes. Numbers only."""

from __future__ import annotations

from kubeletpy.metrics.families import Families

DURATION_MS = tuple(0.05 * 2**power for power in range(15))
CONTAINER, POD = "container", "pod"
PHYSICAL_CPU, NUMA_NODE, UNCORE_CACHE = "physical_cpu", "numa_node", "uncore_cache"


class PlacementMetrics:
    """CPU, memory and topology managers (docs/reference/metrics.csv)."""

    def __init__(self, families: Families) -> None:
        self.cpu_requests = families.counter(
            "kubelet_cpu_manager_pinning_requests_total",
            "Containers that requested exclusive CPUs.",
        )
        self.cpu_errors = families.counter(
            "kubelet_cpu_manager_pinning_errors_total",
            "Containers that requested exclusive CPUs and got none.",
        )
        self.shared_pool = families.gauge(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "CPUs that could still become a container's own.",
        )
        self.exclusive_cpus = families.gauge(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "CPUs that are a container's own.",
        )
        self.exclusive_per_node = families.gauge(
            "kubelet_cpu_manager_allocation_per_numa",
            "CPUs that are a container's own, by NUMA node.",
            "numa_node",
        )
        self.aligned = families.counter(
            "kubelet_container_aligned_compute_resources_count",
            "Allocations that keep to whole units of the machine, where that is promised.",
            "scope",
            "boundary",
        )
        self.not_aligned = families.counter(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Allocations refused because they could not keep to whole units of the machine.",
            "scope",
            "boundary",
        )
        self.memory_requests = families.counter(
            "kubelet_memory_manager_pinning_requests_total",
            "Containers that requested memory of certain NUMA nodes.",
        )
        self.memory_errors = families.counter(
            "kubelet_memory_manager_pinning_errors_total",
            "Containers that requested memory of certain NUMA nodes and got none.",
        )
        self.topology_requests = families.counter(
            "kubelet_topology_manager_admission_requests_total",
            "Pods for which a NUMA assignment was requested.",
        )
        self.topology_errors = families.counter(
            "kubelet_topology_manager_admission_errors_total",
            "Pods refused because their resources lie too far apart.",
        )
        self.topology_duration = families.histogram(
            "kubelet_topology_manager_admission_duration_ms",
            "Time in ms to find a pod's place on the machine.",
            buckets=DURATION_MS,
        )
        self.allocations = families.counter(
            families.newest_name(
                "kubelet_resource_manager_allocations_total", "resource_manager_allocations_total"
            ),
            "Allocations by who gave them and what for.",
            "resource_name",
            "source",
        )
        self.allocation_errors = families.counter(
            families.newest_name(
                "kubelet_resource_manager_allocation_errors_total",
                "resource_manager_allocation_errors_total",
            ),
            "Allocations that failed.",
            "resource_name",
            "source",
        )
        self.assignments = families.counter(
            families.newest_name(
                "kubelet_resource_manager_container_assignments_total",
                "resource_manager_container_assignments",
            ),
            "Containers by how they were given what is theirs.",
            "resource_name",
            "assignment_type",
        )
