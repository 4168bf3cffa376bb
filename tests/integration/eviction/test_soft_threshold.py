"""A soft threshold on a real disk: who frees it in time stays, who does not has time to end."""

from __future__ import annotations

import time

from tests.integration.eviction.eaters import STAY, bound, emptied
from tests.integration.node.conftest import MakeNode
from tests.integration.node.seen import status
from tools.env.containerd import Containerd
from tools.env.machine_faults import MI, file_system

GRACE_S = 6.0
TO_END_S = 4
FULL = "dd if=/dev/zero of=/mem/f bs=1M count=60 2>/dev/null; "
STUBBORN = "trap 'date +%s > /mem/asked' TERM; while :; do sleep 1 & wait $!; done"


def test_graces(make_node: MakeNode, containerd: Containerd) -> None:
    node = make_node(
        containerd,
        config={
            "evictionHard": {"nodefs.available": "10Mi"},
            "evictionSoft": {"nodefs.available": "50Mi"},
            "evictionSoftGracePeriod": {"nodefs.available": f"{GRACE_S:g}s"},
            "evictionMaxPodGracePeriod": TO_END_S,
            "evictionPressureTransitionPeriod": "1s",
        },
    )
    with file_system(node.root_dir, 100 * MI):
        node.start()
        try:
            node.apply(
                bound("brief", f"{FULL} sleep 3; rm /mem/f; {STAY}", {}), namespace="default"
            )
            node.wait_condition("DiskPressure", "True", timeout=30)
            node.wait_condition("DiskPressure", "False", timeout=30)
            time.sleep(GRACE_S)  # had the grace not ended with the shortage, it would now be over
            assert status(node.pod("default", "brief"))["phase"] == "Running"
            assert node.metric("kubelet_evictions") == 0

            node.apply(bound("long", FULL + STUBBORN, {}), namespace="default")
            node.wait_condition("DiskPressure", "True", timeout=30)
            crossed = time.monotonic()
            volumes = node.root_dir / "pods" / node.pod("default", "long")["metadata"]["uid"]
            requested = volumes / "volumes/kubernetes.io~empty-dir/v/asked"
            node.until(requested.exists, "the container gets SIGTERM", timeout=30)
            assert time.monotonic() - crossed > GRACE_S - 1.5
            requested_at = time.monotonic()
            removed = node.wait_phase("default", "long", "Failed", timeout=60)
            assert TO_END_S - 1 < time.monotonic() - requested_at < TO_END_S + 10
            assert "low on resource: ephemeral-storage. " in status(removed)["message"]
            (state,) = status(removed)["containerStatuses"]
            assert state["state"]["terminated"]["exitCode"] == 137
            node.wait_condition("DiskPressure", "False", timeout=60)
            assert status(node.pod("default", "brief"))["phase"] == "Running"
        finally:
            emptied(node)
            node.terminate()
