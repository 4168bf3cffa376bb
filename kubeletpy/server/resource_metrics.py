"""/metrics/resource: cpu and memory of the node, its pods and containers, for metrics-server.

Source: docs/reference, metrics table; KEP-1206. Pods are what the runtime says of their sandboxes,
or the sum of their containers where it says nothing of sandboxes. Must never keep anything between
two scrapes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.labels import CONTAINER_NAME, POD_NAME, POD_NAMESPACE

log = logging.getLogger(__name__)

_NANO = 1e9
_HELP = {
    "container_cpu_usage_seconds_total": ("counter", "CPU time of the container in core-seconds"),
    "container_memory_working_set_bytes": ("gauge", "Working set of the container in bytes"),
    "container_start_time_seconds": ("gauge", "Start of the container in Unix seconds"),
    "node_cpu_usage_seconds_total": ("counter", "CPU time of the node in core-seconds"),
    "node_memory_working_set_bytes": ("gauge", "Working set of the node in bytes"),
    "pod_cpu_usage_seconds_total": ("counter", "CPU time of the pod in core-seconds"),
    "pod_memory_working_set_bytes": ("gauge", "Working set of the pod in bytes"),
    "resource_scrape_error": ("gauge", "1 if container metrics could not be had, else 0"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; ``at`` in Unix nanoseconds, 0 for now."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    at: int = 0


def node_samples(stat: str, meminfo: str, ticks: int) -> list[Sample]:
    """The node's own, from the texts of /proc/stat and /proc/meminfo."""
    cpu = [int(field) for field in stat.split("\n", 1)[0].split()[1:]]
    # user, nice, system, irq, softirq, steal: all but idle and waiting (guests are in user)
    busy = sum(cpu[:3]) + sum(cpu[5:8])
    lines = (line.split() for line in meminfo.splitlines())
    memory = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}
    used = memory.get("MemTotal", 0) - memory.get("MemFree", 0) - memory.get("Inactive(file)", 0)
    return [
        Sample("node_cpu_usage_seconds_total", (), busy / ticks),
        Sample("node_memory_working_set_bytes", (), max(used, 0)),
    ]


def container_samples(
    stats: Iterable[cri.ContainerStats], started: Mapping[str, int]
) -> list[Sample]:
    """Of the containers in ``started`` (id -> Unix nanoseconds): those that run."""
    found: list[Sample] = []
    for each in stats:
        begun = started.get(each.attributes.id)
        named = each.attributes.labels
        if begun is None or not named.get(CONTAINER_NAME):
            continue
        labels = (("container", named[CONTAINER_NAME]), *_pod_labels(named))
        found += _usage("container", labels, each)
        if begun > 0:
            found.append(Sample("container_start_time_seconds", labels, begun / _NANO))
    return found


def sandbox_samples(stats: Iterable[cri.PodSandboxStats]) -> list[Sample]:
    """Of pods, as the runtime says it."""
    return [
        sample
        for each in stats
        for sample in _usage("pod", _pod_labels(each.attributes.labels), each.linux)
    ]


def summed_samples(samples: Iterable[Sample]) -> list[Sample]:
    """Of pods, from the samples of their containers."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, int]] = {}
    for sample in samples:
        if sample.name.startswith("container_") and sample.name != "container_start_time_seconds":
            key = (sample.name.replace("container_", "pod_", 1), sample.labels[1:])
            value, at = sums.get(key, (0.0, 0))
            sums[key] = (value + sample.value, max(at, sample.at))
    return [Sample(name, labels, *total) for (name, labels), total in sums.items()]


def render(samples: Sequence[Sample]) -> bytes:
    """Prometheus' text format."""
    lines: list[str] = []
    for name, (kind, text) in _HELP.items():
        ours = [sample for sample in samples if sample.name == name]
        if ours:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [_line(sample) for sample in ours]
    return ("\n".join(lines) + "\n").encode()


class ResourceMetrics:
    """Asks the runtime and the kernel at each scrape."""

    def __init__(
        self, runtime: RuntimeService, cache: PodStatusCache, proc: Path = Path("/proc")
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._proc = proc

    async def scrape(self) -> bytes:
        """All of it; without what the runtime can't tell."""
        samples = await asyncio.to_thread(self._node)
        try:
            samples += await self._pods()
            failed = 0.0
        except CRIError as error:
            log.warning("the runtime gives no stats", extra={"why": str(error)})
            failed = 1.0
        return render([*samples, Sample("resource_scrape_error", (), failed)])

    def _node(self) -> list[Sample]:
        stat, meminfo = ((self._proc / name).read_text() for name in ("stat", "meminfo"))
        return node_samples(stat, meminfo, os.sysconf("SC_CLK_TCK"))

    async def _pods(self) -> list[Sample]:
        statuses = (self._cache.status(uid) for uid in self._cache)
        started = {
            container.id: container.started_at
            for status in statuses
            if status is not None
            for container in status.running_containers
        }
        containers = container_samples(await self._runtime.list_container_stats(), started)
        try:
            pods = sandbox_samples(await self._runtime.list_pod_sandbox_stats())
        except Unimplemented:
            pods = []
        told = {(sample.name, sample.labels) for sample in pods}
        summed = summed_samples(containers)
        return [*containers, *pods, *(s for s in summed if (s.name, s.labels) not in told)]


def _usage(
    what: str,
    labels: tuple[tuple[str, str], ...],
    usage: cri.ContainerStats | cri.LinuxPodSandboxStats,
) -> list[Sample]:
    found: list[Sample] = []
    cpu, memory = usage.cpu, usage.memory
    if cpu.HasField("usage_core_nano_seconds"):
        seconds = cpu.usage_core_nano_seconds.value / _NANO
        found.append(Sample(f"{what}_cpu_usage_seconds_total", labels, seconds, cpu.timestamp))
    if memory.HasField("working_set_bytes"):
        value = memory.working_set_bytes.value
        found.append(Sample(f"{what}_memory_working_set_bytes", labels, value, memory.timestamp))
    return found


def _pod_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    namespace, pod = labels.get(POD_NAMESPACE, ""), labels.get(POD_NAME, "")
    return (("namespace", namespace), ("pod", pod))


def _line(sample: Sample) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels)
    at = f" {sample.at // 1_000_000}" if sample.at > 0 else ""
    return f"{sample.name}{f'{{{pairs}}}' if pairs else ''} {sample.value!r}{at}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
