"""Parsing of a node's /metrics/resource, and the usage between two such scrapes. Pure.

The rules are those of metrics-server. CPU usage covers the time between two scrapes; for a
container that started after the first, it covers the time since its start. A pod counts only when
all its containers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeletpy.base.structs import Struct, field

_LINE = re.compile(r"([a-z_]+)(?:\{([^{}]*)\})? (\S+)(?: ([0-9]+))?")
_LABEL = re.compile(r'(?<![a-z_])([a-z_]+)="([^"\\]*)"')
_CPU = "_cpu_usage_seconds_total"
_MEMORY = "_memory_working_set_bytes"
_START = "container_start_time_seconds"
_MIN_SECONDS = 0.2

Key = tuple[str, str, str]
"""Namespace, pod, container; all empty for the node."""
NODE: Key = ("", "", "")


class Sample(Struct, frozen=True):
    """One counter: cpu seconds at a time in Unix seconds."""

    used: float
    at: float


class Samples(Struct, frozen=True):
    """The samples of one scrape of a node."""

    cpu: dict[Key, Sample] = field(default_factory=dict)
    memory: dict[Key, int] = field(default_factory=dict)
    started: dict[Key, float] = field(default_factory=dict)

    @property
    def at(self) -> float:
        """When the node was measured, Unix seconds; 0 when it was not."""
        return self.cpu[NODE].at if NODE in self.cpu else 0.0


class Usage(Struct, frozen=True):
    """Usage in cores and bytes, over a window in seconds that ended ``at``."""

    cores: float
    memory: int
    window: float
    at: float


def parse(text: str) -> Samples:
    """Read a scrape; lines that can't be parsed are skipped."""
    found = Samples()
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        name, labels, value, at = match.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        named = dict(_LABEL.findall(labels or ""))
        key = (named.get("namespace", ""), named.get("pod", ""), named.get("container", ""))
        if name.startswith("pod_"):
            continue
        if name == _START:
            found.started[key] = number
        elif name.endswith(_CPU) and at:
            found.cpu[key] = Sample(number, int(at) / 1000)
        elif name.endswith(_MEMORY) and number >= 0:
            found.memory[key] = int(number)
    return found


def used(first: Samples, second: Samples, key: Key) -> Usage | None:
    """The usage of one container, or the node, between two scrapes; None if it is unknown."""
    now, memory = second.cpu.get(key), second.memory.get(key)
    if now is None or memory is None:
        return None
    before = first.cpu.get(key)
    if before is None or before.used > now.used or before.at >= now.at:
        started = second.started.get(key)
        if started is None or started < first.at:
            return None
        before = Sample(0.0, started)
    window = now.at - before.at
    if window < _MIN_SECONDS:
        return None
    return Usage((now.used - before.used) / window, memory, window, now.at)


def has_unreported(first: Samples, second: Samples) -> bool:
    """Whether something runs whose usage is unknown yet, since it has only just started."""
    return any(used(first, second, key) is None for key in second.cpu)


def pod_usages(
    first: Samples, second: Samples
) -> Iterator[tuple[tuple[str, str], dict[str, Usage]]]:
    """(namespace, name) -> usage by container, for pods whose containers are all known."""
    pods: dict[tuple[str, str], dict[str, Usage | None]] = {}
    for key in second.cpu:
        if key != NODE:
            pods.setdefault(key[:2], {})[key[2]] = used(first, second, key)
    for pod, containers in pods.items():
        reported = {name: usage for name, usage in containers.items() if usage is not None}
        if len(reported) == len(containers):
            yield pod, reported
