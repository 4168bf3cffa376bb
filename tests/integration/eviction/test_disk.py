"""Real pods that fill a real file system, with bytes and with files."""

from __future__ import annotations

from tests.integration.eviction.eaters import STAY, bound, emptied
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.seen import status
from tools.env.containerd import Containerd
from tools.env.machine_faults import MI, file_system

FULL = "dd if=/dev/zero of=/mem/f bs=1M count=70 2>/dev/null; "
MANY = "i=0; while [ $i -lt 700 ]; do : > /mem/$i; i=$((i+1)); done; "


def test_the_pod_that_fills_the_disk_is_evicted(
    make_node: MakeNode, containerd2: Containerd
) -> None:
    node = make_node(
        containerd2,
        config={
            "evictionHard": {"nodefs.available": "50Mi", "nodefs.inodesFree": "30%"},
            "evictionPressureTransitionPeriod": "2s",
        },
    )
    with file_system(node.root_dir, 100 * MI, 1024):
        node.start()
        try:
            for name, script, resource in (
                ("bytes", FULL, "ephemeral-storage"),
                ("files", MANY, "inodes"),
            ):
                node.apply(bound("calm"), namespace="default")
                node.wait_running("default", "calm")  # what does not run yet would go first
                node.apply(bound(name, script + STAY, {}), namespace="default")
                # first: a condition of two seconds may be over when the pod has ended
                node.wait_condition("DiskPressure", "True", timeout=60)
                removed = node.wait_phase("default", name, "Failed", timeout=60)
                assert status(removed)["reason"] == "Evicted"
                assert f"low on resource: {resource}. " in status(removed)["message"]
                node.wait_condition("DiskPressure", "False", timeout=30)
                assert status(node.pod("default", "calm"))["phase"] == "Running"
                emptied(node)
        finally:
            emptied(node)
            node.terminate()
