"""Huge pages: the node's capacity, limits in the kernel, and a volume of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.node import VirtualNode, container, pod
from tools.lab.requests import GuestError

pytestmark = pytest.mark.machine("qemu")
MIB = 1 << 20
PAGES = 16
SETTING = "/proc/sys/vm/nr_hugepages"
MAX, USED = "hugetlb.2MB.max", "hugetlb.2MB.current"


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node with 32 MiB of huge pages."""
    node.shell(f"echo 3 > /proc/sys/vm/drop_caches; echo {PAGES} > {SETTING}")
    assert node.read(SETTING) == str(PAGES)
    node.forget_settings()
    node.configure("systemd")
    yield node
    node.remove_pods()
    node.shell(f"echo 0 > {SETTING}")
    node.forget_settings()


def test_huge_pages_are_limited_for_pods_and_containers(node: VirtualNode) -> None:
    assert node.get("node", "node")["status"]["capacity"]["hugepages-2Mi"] == "32Mi"
    amounts = {"hugepages-2Mi": "8Mi", "memory": "32Mi", "cpu": "50m"}
    node.run_pods(
        pod(
            "huge",
            container(
                limits=amounts,
                requests=amounts,
                volumeMounts=[{"name": "pages", "mountPath": "/pages"}],
            ),
            volumes=[{"name": "pages", "emptyDir": {"medium": "HugePages-2Mi"}}],
        ),
        pod("small", container(limits={"memory": "32Mi"})),
    )
    limits = {"huge": str(8 * MIB), "small": "0"}
    groups = {}
    for name in limits:
        item = node.get("pod", name)
        groups[name] = (node.group_of(item), node.container_group(item))
    for _ in range(2):
        for name, limit in limits.items():
            for group in groups[name]:
                assert node.kernel(group, MAX) == {MAX: limit}
        node.shell(
            "systemctl daemon-reload; systemd-run --quiet --wait --slice=kubepods.slice true"
        )

    assert "pagesize=2M" in node.kubectl("exec", "huge", "--", "grep", "/pages", "/proc/mounts")
    node.kubectl("exec", "huge", "--", "fallocate", "-l", "8388608", "/pages/a")
    for group in groups["huge"]:
        assert node.kernel(group, USED) == {USED: str(8 * MIB)}
    # the node has 8 pages left; it is the cgroup that refuses them
    with pytest.raises(GuestError, match="/pages/b"):
        node.kubectl("exec", "huge", "--", "fallocate", "-l", "2097152", "/pages/b")
    assert node.kernel(groups["huge"][1], USED) == {USED: str(8 * MIB)}

    node.remove_pods()
    free = "awk '/HugePages_Free/ {print $2}' /proc/meminfo"
    node.until(f'[ "$({free})" = {PAGES} ]', say="grep Huge /proc/meminfo")
