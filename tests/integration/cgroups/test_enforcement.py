"""Effects of enforceNodeAllocatable on the cgroups of a machine."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.cgroups.test_limits import group
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.pods import pod
from tools.env import kernel_limits as kernel
from tools.env.containerd import Containerd
from tools.env.sweep import cgroups


def test_the_node_is_limited_and_reports_it(
    make_node: MakeNode, session_containerd2: Containerd
) -> None:
    reserved = f"/kpt-reserved-{os.getpid()}"
    for root in kernel.hierarchies("cpu", "memory", "pids"):
        (root / reserved[1:]).mkdir()
    config = {
        "enforceNodeAllocatable": ["pods", "system-reserved", "kube-reserved-compressible"],
        "systemReserved": {"cpu": "100m", "memory": "1Gi", "pid": "1000"},
        "kubeReserved": {"cpu": "100m"},
        "systemReservedCgroup": reserved,
        "kubeReservedCgroup": "/kpt-that-is-not-there",
        "podPidsLimit": 77,
    }
    node = make_node(session_containerd2, config=config)
    try:
        node.start()
        for text in (
            "NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
            f"NodeAllocatableEnforced: Updated limits on system reserved cgroup {reserved}",
            "FailedNodeAllocatableEnforcement: Failed to enforce Kube Reserved Compressible Cgroup "
            'Limits on "/kpt-that-is-not-there": ',
        ):
            node.wait_event("default", node.name, text)
        assert kernel.memory_limit(reserved) == 1 << 30
        assert kernel.shares(reserved) == kernel.kept_shares(102)
        kubepods = f"{node.cgroup_root}/kubepods"
        cpus, total = os.cpu_count() or 1, int(Path("/proc/meminfo").read_text().split()[1])
        shares = (cpus * 1000 - 200) * 1024 // 1000
        assert kernel.shares(kubepods) == kernel.kept_shares(shares)
        limit = (total * 1024 - (1 << 30)) & ~4095
        assert kernel.memory_limit(kubepods) == limit
        node.apply(pod("a"), namespace="default")
        made = node.wait_running("default", "a")
        assert kernel.read(group(made, node), "pids.max") == "77"
        assert node.metric("kubelet_cgroup_version") == kernel.VERSION
        assert node.metric("kubelet_cgroup_manager_duration_seconds_count", operation_type="create")
        node.api.delete("pods", "default", "a", grace=1)
        node.wait_removed("default", "a")
    finally:
        node.kill()
        for path in cgroups([reserved]):
            path.rmdir()
