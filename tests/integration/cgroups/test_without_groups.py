"""cgroupsPerQOS false: pods run without cgroups of their own."""

from __future__ import annotations

from tests.integration.cgroups.test_limits import MI, placed, sized
from tests.integration.node.conftest import MakeNode, remove_pods
from tests.integration.node.pods import pod
from tests.integration.node.seen import container_status
from tools.env import kernel_limits as kernel
from tools.env.containerd import Containerd
from tools.env.sweep import cgroups


def test_without_cgroups_per_qos_pods_run_too(
    make_node: MakeNode, session_containerd2: Containerd
) -> None:
    config = {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"], "cgroupRoot": ""}
    node = make_node(session_containerd2, config=config)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": "plain"}})
    node.apply(pod("a", sized({"memory": "24Mi"})), namespace="plain")
    made = node.wait_running("plain", "a")
    assert "kubepods" not in placed(node, made)
    file = kernel.file_in_container(kernel.MEMORY_LIMIT_FILE)
    seen = node.exec(container_status(made)["containerID"], "cat", file)
    assert seen[1].strip() == str(24 * MI)
    assert cgroups([f"{node.cgroup_root}/kubepods"]) == []
    remove_pods(node, "plain")
