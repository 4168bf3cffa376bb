"""/metrics/resource: cpu, memory and swap of the node, its pods and containers, for metrics-server.

Pure. Source: docs/reference/metrics.csv; KEP-1206.
"""

from __future__ import annotations

from kubeletpy.node.stats.summary import pod_stats
from kubeletpy.node.stats.text import Scrape, labels
from kubeletpy.node.stats.usage import GroupStats, Reading

_NANO = 1e9
FAMILIES = {
    "container_cpu_usage_seconds_total": (
        "counter",
        "[STABLE] CPU time of the container in core-seconds",
    ),
    "container_memory_working_set_bytes": (
        "gauge",
        "[STABLE] Working set of the container in bytes",
    ),
    "container_start_time_seconds": ("gauge", "[STABLE] Start of the container in Unix seconds"),
    "container_swap_limit_bytes": ("gauge", "[ALPHA] Swap that the container may use, in bytes"),
    "container_swap_usage_bytes": ("gauge", "[ALPHA] Swap that the container uses, in bytes"),
    "node_cpu_usage_seconds_total": ("counter", "[STABLE] CPU time of the node in core-seconds"),
    "node_memory_working_set_bytes": ("gauge", "[STABLE] Working set of the node in bytes"),
    "node_swap_usage_bytes": ("gauge", "[ALPHA] Swap that the node uses, in bytes"),
    "pod_cpu_usage_seconds_total": ("counter", "[STABLE] CPU time of the pod in core-seconds"),
    "pod_memory_working_set_bytes": ("gauge", "[STABLE] Working set of the pod in bytes"),
    "pod_swap_usage_bytes": ("gauge", "[ALPHA] Swap that the pod uses, in bytes"),
    "resource_scrape_error": ("gauge", "[STABLE] 1 if container metrics could not be had, else 0"),
}


def render(reading: Reading) -> bytes:
    """A scrape."""
    scrape = Scrape(FAMILIES)
    for pod in reading.pods:
        ref = pod.ref
        for group in pod.containers:
            if group.stats is None:
                continue
            named = {"container": group.name, "namespace": ref.namespace, "pod": ref.name}
            text = labels(named)
            if group.started_at > 0:
                scrape.add("container_start_time_seconds", text, group.started_at / _NANO)
            _add(scrape, "container", text, group.stats)
            limit = group.stats.swap_limit
            scrape.add("container_swap_limit_bytes", text, limit, group.stats.at)
        stats = pod_stats(pod)
        if stats is not None:
            _add(scrape, "pod", labels({"namespace": ref.namespace, "pod": ref.name}), stats)
    if reading.node.group.stats is not None:
        _add(scrape, "node", "", reading.node.group.stats)
    scrape.add("resource_scrape_error", "", 1 if reading.problem else 0)
    return scrape.render()


def _add(scrape: Scrape, what: str, text: str, stats: GroupStats) -> None:
    seconds = None if stats.cpu_ns is None else stats.cpu_ns / _NANO
    scrape.add(f"{what}_cpu_usage_seconds_total", text, seconds, stats.at)
    scrape.add(f"{what}_memory_working_set_bytes", text, stats.working_set, stats.at)
    scrape.add(f"{what}_swap_usage_bytes", text, stats.swap, stats.at)
