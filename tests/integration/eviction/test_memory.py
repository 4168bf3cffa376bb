"""A real pod that eats the memory of a real node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.eviction.eaters import STRESS, bound, emptied, stress_image
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import condition, status
from tools.env.containerd import Containerd
from tools.env.images import write_archive

MI = 1 << 20
ROOM = 400 * MI
"""Memory that all pods may use."""
THRESHOLD = 200 * MI
EATER = (
    "trap 'exit 0' TERM; i=0; while [ $i -lt 37 ]; do "
    "dd if=/dev/zero of=/mem/$((i%2))/$i bs=8M count=1 2>/dev/null; "
    "i=$((i+1)); sleep 0.05 & wait $!; done; while :; do sleep 1 & wait $!; done"
)
"""Takes some hundred megabytes a second, up to 296: the OOM killer would need more.

It fills two volumes. One in memory is no larger than what pods may have, and alone does not reach
the threshold where another test has taken huge pages of the machine.
"""
PLACES = ("/mem/0", "/mem/1")
STRESSES = container(
    image=STRESS, command=["/usr/bin/stress-ng", "--vm", "2", "--vm-bytes", "300M", "--vm-keep"]
)
"""Takes 300 MiB as fast as it can."""


def memory() -> int:
    """The machine's memory, in bytes."""
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.fixture
def small(make_node: MakeNode, containerd2: Containerd, tmp_path: Path) -> Node:
    """A node that has little memory for pods."""
    containerd2.import_images(write_archive(tmp_path / "stress.tar", stress_image()))
    node = make_node(
        containerd2,
        config={
            "systemReserved": {"memory": str(memory() - ROOM)},
            "evictionHard": {"memory.available": str(THRESHOLD)},
            "evictionPressureTransitionPeriod": "3s",
        },
    )
    node.start()
    return node


def test_the_pod_that_eats_the_memory_is_evicted_and_the_node_recovers(small: Node) -> None:
    small.apply(bound("calm"), namespace="default")
    small.wait_running("default", "calm")
    small.apply(bound("eater", EATER, {"medium": "Memory"}, PLACES), namespace="default")
    # first: a condition of two seconds may be over when the pod has ended
    small.wait_condition("MemoryPressure", "True")
    removed = small.wait_phase("default", "eater", "Failed")
    assert status(removed)["reason"] == "Evicted"
    message = status(removed)["message"]
    assert re.fullmatch(
        r"The node was low on resource: memory\. Threshold quantity: 200Mi, available: \S+\. "
        r"Container main was using \S+, request is 0, has larger consumption of memory\. ",
        message,
    )
    assert condition(removed, "DisruptionTarget")["message"] == message
    small.wait_event("default", "eater", "Evicted: The node was low on resource: memory")
    small.wait_condition("MemoryPressure", "False", timeout=30)
    assert status(small.pod("default", "calm"))["phase"] == "Running"
    signal = "allocatableMemory.available"
    assert small.metric("kubelet_evictions", eviction_signal=signal) == 1

    # what it takes is its own, not in a volume
    small.apply(pod("stress", STRESSES, nodeName="test-node"), namespace="default")
    # first: a condition of two seconds may be over when the pod has ended
    small.wait_condition("MemoryPressure", "True")
    removed = small.wait_phase("default", "stress", "Failed")
    message = status(removed)["message"]
    assert re.search(
        r"low on resource: memory\. .* Container main was using (\d{6}Ki|\d{3}Mi), ", message
    ), message
    small.wait_condition("MemoryPressure", "False", timeout=30)
    assert status(small.pod("default", "calm"))["phase"] == "Running"
    assert small.metric("kubelet_evictions", eviction_signal=signal) == 2
    emptied(small)
    small.terminate()
