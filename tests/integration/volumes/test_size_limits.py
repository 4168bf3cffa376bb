"""Pods that take more disk than they may are evicted, and only those, on both containerds."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod

TAKES_S = 90.0
"""More than two measurements of the disk, and containerd's own count of layers, take."""


def write(path: str, mebibytes: int) -> str:
    """A script that writes as much into a file, and stays."""
    return f"dd if=/dev/zero of={path} bs=1M count={mebibytes} 2>/dev/null; {FOREVER}"


def cache(limit: str, **more: Any) -> JSON:
    return {"name": "cache", "emptyDir": {"sizeLimit": limit, **more}}


def limited(name: str, script: str, limit: str) -> JSON:
    return container(name, script, resources={"limits": {"ephemeral-storage": limit}})


CASES = {
    "volume": (
        pod(
            "volume",
            container(
                "main", write("/c/x", 8), volumeMounts=[{"name": "cache", "mountPath": "/c"}]
            ),
            volumes=[cache("4Mi")],
        ),
        'Usage of EmptyDir volume "cache" exceeds the limit "4Mi". ',
    ),
    "layer": (
        # the pod's total is checked first: only a large limit of another container lets it pass
        pod("layer", limited("main", write("/x", 8), "4Mi"), limited("other", FOREVER, "1Gi")),
        'Container main exceeded its local ephemeral storage limit "4Mi". ',
    ),
    "whole": (
        pod("whole", limited("main", write("/x", 3), "4Mi"), container("other", write("/x", 3))),
        "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
    ),
    "logs": (
        pod(
            "logs",
            limited("main", f"yes 0123456789abcdef | head -c 4000000; {FOREVER}", "2Mi"),
            limited("other", FOREVER, "1Gi"),
        ),
        'Container main exceeded its local ephemeral storage limit "2Mi". ',
    ),
}


@pytest.mark.timeout(180)
def test_only_pods_over_their_limits_are_evicted(node: Node, namespace: str) -> None:
    before = evictions(node)
    mounted = [{"name": "cache", "mountPath": "/c"}]
    good = pod(
        "good",
        container("main", write("/c/x", 3), volumeMounts=mounted),
        limited("other", write("/x", 2), "16Mi"),
        volumes=[cache("4Mi")],
    )
    memory = pod(
        "memory",
        container("main", write("/c/x", 8), volumeMounts=mounted),
        volumes=[cache("4Mi", medium="Memory")],
    )
    critical = pod(
        "critical",
        container("main", write("/c/x", 8), volumeMounts=mounted),
        volumes=[cache("4Mi")],
        priorityClassName="system-node-critical",
    )
    node.apply(*(each for each, _ in CASES.values()), good, memory, critical, namespace=namespace)
    for name, (_, message) in CASES.items():
        status = node.wait_phase(namespace, name, "Failed", TAKES_S)["status"]
        assert (status["reason"], status["message"]) == ("Evicted", message)
        assert all(c["type"] != "DisruptionTarget" for c in status["conditions"])
        node.wait_event(namespace, name, f"Evicted: {re.escape(message)}")
        notified = [e for e in node.events(namespace, name) if e.startswith("Evicted")]
        assert len(notified) == 1
    for name in ("good", "memory", "critical"):
        status = node.pod(namespace, name)["status"]
        assert status["phase"] == "Running", name
        assert not [e for e in node.events(namespace, name) if e.startswith("Evicted")]
    after = evictions(node)
    found = {signal: after[signal] - before.get(signal, 0) for signal in after}
    assert found == {
        "emptydirfs.limit": 1,
        "ephemeralpodfs.limit": 1,
        "ephemeralcontainerfs.limit": 2,
    }
    node.until(
        lambda: not any(node.containers(namespace, name) for name in CASES),
        "the containers of evicted pods are removed",
        namespace,
    )


def evictions(node: Node) -> dict[str, float]:
    """kubelet_evictions by signal."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.health_port}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'^kubelet_evictions\{eviction_signal="(.*)"\} (\S+)$', text, re.M)
    return {signal: float(count) for signal, count in found}
