"""A real pod that takes the process numbers of a real node."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.text import number
from tests.integration.eviction.eaters import STAY, bound, emptied
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.seen import status
from tools.env.containerd import Containerd


def test_the_pod_that_takes_the_process_numbers_is_evicted(
    make_node: MakeNode, containerd2: Containerd
) -> None:
    most = min(
        number(Path(f"/proc/sys/kernel/{name}").read_text()) or 0
        for name in ("pid_max", "threads-max")
    )
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    node = make_node(
        containerd2,
        config={
            "evictionHard": {"pid.available": str(most - tasks - 1500)},
            "evictionPressureTransitionPeriod": "2s",
        },
    )
    node.start()
    try:
        many = "i=0; while [ $i -lt 2500 ]; do sleep 600 & i=$((i+1)); done; "
        node.apply(bound("calm"), bound("many", many + STAY), namespace="default")
        # first: a condition of two seconds may be over when the pod has ended
        node.wait_condition("PIDPressure", "True", timeout=60)
        removed = node.wait_phase("default", "many", "Failed", timeout=60)
        assert status(removed)["message"].startswith("The node was low on resource: pids. ")
        node.wait_condition("PIDPressure", "False", timeout=30)
        assert status(node.pod("default", "calm"))["phase"] == "Running"
    finally:
        emptied(node)
        node.terminate()
