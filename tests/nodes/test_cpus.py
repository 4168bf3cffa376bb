"""Exclusive CPUs of the static CPU manager, in the kernel's cpusets: two processors are needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.guest import GROUPS
from tests.nodes.node import VirtualNode, container, pod

pytestmark = pytest.mark.machine("qemu")
STATE = "/var/lib/kubelet/cpu_manager_state"
ONE = {"cpu": "1", "memory": "32Mi"}


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node that keeps CPU 0 for itself and for containers without CPUs of their own."""
    # an agent whose policy is not that of its state does not start
    node.shell(f"systemctl stop kubeletpy; rm -f {STATE}")
    node.configure("systemd", cpuManagerPolicy="static", reservedSystemCPUs="0")
    yield node
    node.remove_pods()
    node.shell(f"systemctl stop kubeletpy; rm {STATE}")
    node.forget_settings()


def wait_cpus(node: VirtualNode, item: JSON, cpus: str) -> None:
    """Wait until a pod's container may use these CPUs and no others, by its cgroup."""
    group = f"{GROUPS}/{node.container_group(item)}"
    node.until(
        f'[ "$(cat {group}/cpuset.cpus)" = {cpus} ]'
        f' && [ "$(cat {group}/cpuset.cpus.effective)" = {cpus} ]',
        say=f"grep . {group}/cpuset.*; cat {STATE}",
    )


def allowed(node: VirtualNode, name: str) -> str:
    """CPUs that a pod's first process may use, as it sees them itself."""
    status = node.kubectl("exec", name, "--", "cat", "/proc/1/status")
    (line,) = (line for line in status.splitlines() if line.startswith("Cpus_allowed_list"))
    return line.split()[1]


def test_an_exclusive_cpu_leaves_the_other_containers(node: VirtualNode) -> None:
    assert node.get("node", "node")["status"]["capacity"]["cpu"] == "2"
    node.run_pods(pod("shared", container(requests={"memory": "16Mi"})))
    shared = node.get("pod", "shared")
    wait_cpus(node, shared, "0-1")

    node.run_pods(pod("exclusive", container(limits=ONE, requests=ONE)))
    exclusive = node.get("pod", "exclusive")
    wait_cpus(node, exclusive, "1")
    wait_cpus(node, shared, "0")
    assert (allowed(node, "exclusive"), allowed(node, "shared")) == ("1", "0")

    node.shell("systemctl daemon-reload; systemctl restart kubeletpy")
    node.wait_ready()
    wait_cpus(node, exclusive, "1")
    wait_cpus(node, shared, "0")

    node.kubectl("delete", "pod", "exclusive")
    wait_cpus(node, shared, "0-1")
    after = node.get("pod", "shared")["status"]["containerStatuses"][0]
    assert after["containerID"] == shared["status"]["containerStatuses"][0]["containerID"]
