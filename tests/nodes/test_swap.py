"""Swap behaviors: what the kernel lets containers swap, measured in its files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import SLEEPS, VirtualNode, container, pod
from tests.nodes.setup import ADMIN

pytestmark = pytest.mark.long
MIB = 1 << 20
PAGE = 4096
SWAP_MIB = 512
DRIVERS = ("systemd", "cgroupfs")
REQUEST_MIB, LIMIT_MIB, USED_MIB = 96, 112, 120
HOLDS = (
    "until [ -e /go ]; do sleep 1; done;"
    f" dd if=/dev/zero bs={USED_MIB}M count=1 2>/dev/null | sleep 100000 & {SLEEPS}"
)
"""Script that fills a buffer of dd on a signal; dd keeps it because a pipe takes little of it."""


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node with a swap file."""
    node.shell(
        f"fallocate -l {SWAP_MIB}M /swap && chmod 600 /swap && mkswap -q /swap && swapon /swap"
    )
    yield node
    node.remove_pods()
    node.shell("swapoff /swap; rm /swap")


def swapping() -> list[JSON]:
    """One Burstable pod that takes more memory than its limit, and one pod of each other class."""
    return [
        pod(
            "burstable",
            container(
                script=HOLDS,
                requests={"memory": f"{REQUEST_MIB}Mi"},
                limits={"memory": f"{LIMIT_MIB}Mi"},
            ),
            container("equal", requests={"memory": "32Mi"}, limits={"memory": "32Mi"}),
            container("none", limits={"cpu": "100m"}),
        ),
        pod("guaranteed", container(limits={"cpu": "100m", "memory": "32Mi"})),
        pod("besteffort"),
    ]


def swap_limits(node: VirtualNode) -> dict[str, list[str]]:
    """Pod -> memory.swap.max of each of its containers."""
    return {
        item["metadata"]["name"]: [
            node.kernel(node.container_group(item, each["name"]), "memory.swap.max")[
                "memory.swap.max"
            ]
            for each in item["spec"]["containers"]
        ]
        for item in node.get("pods")["items"]
    }


@pytest.mark.parametrize("driver", DRIVERS)
def test_limited_swap_is_a_share_of_the_nodes_swap(node: VirtualNode, driver: str) -> None:
    node.configure(driver, failSwapOn=False, memorySwap={"swapBehavior": "LimitedSwap"})
    node.run_pods(*swapping())
    memory, swap = (
        int(node.shell(f"awk '/{name}/ {{print $2}}' /proc/meminfo")) << 10
        for name in ("MemTotal", "SwapTotal")
    )
    share = int(REQUEST_MIB * MIB / memory * swap) // PAGE * PAGE
    assert 0 < share < SWAP_MIB * MIB
    assert swap_limits(node) == {
        "burstable": [str(share), "0", "0"],
        "guaranteed": ["0"],
        "besteffort": ["0"],
    }
    group = node.container_group(node.get("pod", "burstable"), "main")
    node.kubectl("exec", "burstable", "-c", "main", "--", "touch", "/go")
    node.until(
        f"[ $(cat /sys/fs/cgroup/{group}/memory.swap.current) -ge {4 * MIB} ]",
        say=f"cd /sys/fs/cgroup/{group}; grep . memory.*current memory.*max memory.events",
    )
    seen = node.kernel(group, "memory.current", "memory.swap.current", "memory.events")
    assert int(seen["memory.current"]) <= LIMIT_MIB * MIB
    assert int(seen["memory.swap.current"]) <= share
    assert "oom_kill 0" in seen["memory.events"]


def test_no_swap_kills_a_pod_that_limited_swap_lets_swap(node: VirtualNode) -> None:
    node.configure("systemd", failSwapOn=False, memorySwap={"swapBehavior": "NoSwap"})
    node.run_pods(*swapping())
    assert swap_limits(node) == {
        "burstable": ["0", "0", "0"],
        "guaranteed": ["0"],
        "besteffort": ["0"],
    }
    group = node.group_of(node.get("pod", "burstable"))
    node.kubectl("exec", "burstable", "-c", "main", "--", "touch", "/go")
    # not the reason in its status: containerd loses the kernel's report now and then
    events = f"kubectl --kubeconfig={ADMIN} get events"
    node.until(f"{events} | grep 'main ended: killed by the kernel at the memory'", say=events)
    assert "ProcessOOMKilled" not in node.kubectl("get", "events")
    assert node.kernel(group, "memory.swap.current") == {"memory.swap.current": "0"}
