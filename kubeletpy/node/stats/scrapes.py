"""The texts of scrapes that are built from a reading, and a reading in brief. Pure.

/metrics/resource for metrics-server (docs/reference/metrics.csv; KEP-1206), /metrics/cadvisor as
the runtime writes it, and the disk usage of logs in /metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component
from kubeletpy.node.stats.summary import pod_stats
from kubeletpy.node.stats.usage import CgroupUsage, Disks, GroupStats, PodRef, Reading
from kubeletpy.remote.generated import api_pb2 as cri

Labels = str
"""``a="b",c="d"``, ready to write."""


def labels(pairs: Mapping[str, str]) -> Labels:
    """Labels in the order given, escaped."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in pairs.items())


def escape(text: str) -> str:
    """A label's value or, without quotes, a help text."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Scrape(Component):
    """Prometheus' text format, for series that are rebuilt at each scrape.

    Families come in the order in which they first appear.

    Args:
        families: name -> (type, help); no other may be added.
    """

    families: Mapping[str, tuple[str, str]]

    def __post_init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, labels: Labels, value: float | None, at: int = 0) -> None:
        """One sample; None adds nothing. ``at`` in Unix nanoseconds, 0: without a time."""
        if value is None:
            return
        line = f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}"
        self._lines.setdefault(name, []).append(f"{line} {at // 1_000_000}" if at > 0 else line)

    def render(self) -> bytes:
        """The text of all samples, encoded."""
        return "".join(self._text()).encode("utf-8", "replace")

    def _text(self) -> Iterable[str]:
        for name, lines in self._lines.items():
            kind, text = self.families[name]
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
            yield "\n".join(lines)
            yield "\n"


_NANO = 1e9
RESOURCE_FAMILIES = {
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


def render_resource_metrics(reading: Reading) -> bytes:
    """/metrics/resource: cpu, memory and swap of the node, its pods and containers."""
    scrape = Scrape(RESOURCE_FAMILIES)
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


_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def render_cri_metrics(
    descriptors: Iterable[cri.MetricDescriptor], pods: Iterable[cri.PodSandboxMetrics]
) -> bytes:
    """/metrics/cadvisor as the runtime itself writes it (ListPodSandboxMetrics).

    For runtimes that support it, when the feature gate PodAndContainerStatsFromCRI is on. The
    runtime's text is untrusted: invalid metric names are omitted, as is a metric without a
    descriptor or with the wrong number of labels.
    """
    known = {
        each.name: each
        for each in descriptors
        if _NAME.fullmatch(each.name) and all(_NAME.fullmatch(key) for key in each.label_keys)
    }
    metrics = [
        metric
        for pod in pods
        for metric in chain(pod.metrics, *(each.metrics for each in pod.container_metrics))
        if metric.name in known
    ]
    kinds = {
        metric.name: "counter" if metric.metric_type == cri.COUNTER else "gauge"
        for metric in metrics
    }
    families = {name: (kind, escape(known[name].help)) for name, kind in kinds.items()}
    scrape = Scrape(families)
    for metric in metrics:
        keys = known[metric.name].label_keys
        if len(keys) == len(metric.label_values):
            named = labels(dict(zip(keys, metric.label_values, strict=True)))
            fraction = metric.HasField("double_value")
            value = metric.double_value.value if fraction else metric.value.value
            scrape.add(metric.name, named, value, metric.timestamp)
    return scrape.render()


_LOG_USAGE = "kubelet_container_log_filesystem_used_bytes"
LOG_FAMILIES = {_LOG_USAGE: ("gauge", "[ALPHA] Bytes that the logs of a container take on disk.")}


def render_log_metrics(disks: Disks, refs: Mapping[str, PodRef]) -> bytes:
    """The disk usage of container logs in /metrics; ``refs``: pods by uid, others are omitted."""
    scrape = Scrape(LOG_FAMILIES)
    for uid, disk in disks.pods.items():
        if (ref := refs.get(uid)) is None:
            continue
        for container, use in disk.logs.items():
            named = {"container": container, "namespace": ref.namespace, "pod": ref.name}
            scrape.add(_LOG_USAGE, labels({**named, "uid": uid}), use.used)
    return scrape.render()


def brief(reading: Reading) -> JSON:
    """CPU and memory of each running container, for `kubeletpy view`.

    ``{"at", "problem", "pods": [{"uid", "containers": [...]}]}``.

    A container has ``name``, ``at`` (Unix seconds), ``cpu`` (seconds of CPU time since it began),
    ``memory`` (its working set) and ``memory_limit`` in bytes; None: unknown or unlimited.
    """
    return {
        "at": reading.at / 1e9,
        "problem": reading.problem,
        "pods": [
            {"uid": pod.ref.uid, "containers": [_container(group) for group in pod.containers]}
            for pod in reading.pods
        ],
    }


def _container(group: CgroupUsage) -> JSON:
    stats = group.stats or GroupStats()
    return {
        "name": group.name,
        "at": stats.at / 1e9 if stats.at else None,
        "cpu": None if stats.cpu_ns is None else stats.cpu_ns / 1e9,
        "memory": stats.working_set if stats.working_set is not None else stats.memory,
        "memory_limit": stats.limit,
    }
