"""The kernel's own numbers of a container, read by the test itself, and what the node serves."""

from __future__ import annotations

import json
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.machine_side import bare_id
from tools.env import kernel_limits


def group(node: Node, uid: str, container_id: str) -> str:
    """The path of a container's cgroup below its hierarchies."""
    root = kernel_limits.hierarchy("memory")
    name = bare_id(container_id)
    for pod in root.glob(f"{node.cgroup_root.strip('/')}/kubepods/**/pod{uid}"):
        found = [path for path in pod.iterdir() if name in path.name]
        # the longer name is the one of the container's monitor
        return f"/{min(found, key=lambda path: len(path.name)).relative_to(root)}"
    raise LookupError(f"no cgroup of pod {uid}")


def cpu_seconds(path: str) -> float:
    """CPU seconds that a cgroup has used."""
    if kernel_limits.VERSION == 2:
        return int(kernel_limits.read(path, "cpu.stat").split()[1]) / 1e6
    return int(kernel_limits.read(path, "cpuacct.usage")) / 1e9


def throttled_periods(path: str) -> int:
    """Number of periods in which its quota throttled a cgroup."""
    lines = kernel_limits.read(path, "cpu.stat").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_throttled "))


def raw(node: Node, path: str) -> str:
    """An answer of the node's own server, through the API."""
    return node.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy{path}")


def summary(node: Node, query: str = "") -> JSON:
    """The summary document."""
    found: JSON = json.loads(raw(node, f"/stats/summary{query}"))
    return found


def pod_of(document: JSON, namespace: str, name: str) -> JSON:
    """A pod in a summary."""
    (found,) = [
        pod
        for pod in document["pods"]
        if (pod["podRef"]["namespace"], pod["podRef"]["name"]) == (namespace, name)
    ]
    return dict(found)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """A scrape, as Prometheus' own parser reads it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, /, **labels: str) -> float:
    """The one sample of that name with these labels among others."""
    desired = set(labels.items())
    (found,) = [
        value for (n, supplied), value in samples(text).items() if n == name and desired <= supplied
    ]
    return found


def missing(document: JSON, paths: Iterable[str]) -> list[str]:
    """Dotted paths (``[]`` for each item of a list) that a document does not have."""
    return [path for path in paths if not _has(document, path.split("."))]


def _has(found: object, parts: list[str]) -> bool:
    if not parts:
        return found is not None
    name = parts[0]
    if not isinstance(found, dict):
        return False
    if name.endswith("[]"):
        items = found.get(name.removesuffix("[]")) or []
        return any(_has(item, parts[1:]) for item in items)
    return _has(found.get(name), parts[1:])
