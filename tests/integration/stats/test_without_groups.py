"""cgroupsPerQOS false: pods run without cgroups of their own; numbers are on the read-only port."""

from __future__ import annotations

import json
import urllib.request

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.cgroups.test_limits import MI, placed, sized
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status
from tests.integration.stats.test_numbers import HELD, HOLD
from tools.env import kernel_limits as kernel
from tools.env.containerd import Containerd
from tools.env.ports import free_port
from tools.env.sweep import cgroups


def test_pods_without_cgroups_of_their_own(
    make_node: MakeNode, session_containerd2: Containerd, request: pytest.FixtureRequest
) -> None:
    """The runtime puts them where it likes; the read-only port shows the numbers too."""
    port = free_port()
    config = {
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": ["none"],
        "cgroupRoot": "",
        "readOnlyPort": port,
        "volumeStatsAggPeriod": "-1s",
    }
    node = make_node(session_containerd2, "plain-node", config)
    node.start()
    node.apply(pod("plain", container("main", HOLD)), namespace="default")
    node.wait_running("default", "plain")
    request.addfinalizer(lambda: remove_pod(node, "plain"))

    def held() -> JSON | None:
        (reported,) = get(port, "/stats/summary")["pods"]
        (main,) = reported["containers"]
        return dict(reported) if main["memory"]["workingSetBytes"] > HELD else None

    reported = node.until(held, "memory is held", "default", "plain")
    assert reported["memory"]["workingSetBytes"] >= HELD
    assert reported["network"]["name"] == "eth0"
    assert "volume" not in reported
    assert reported["containers"][0]["rootfs"]["capacityBytes"] > 0
    limited(node)
    names = {each["name"] for each in get(port, "/stats/summary")["node"]["systemContainers"]}
    assert names == {"kubelet", "runtime"}


def limited(node: Node) -> None:
    """Check that the limit of a container holds, in a cgroup of the runtime's choice."""
    node.apply(pod("a", sized({"memory": "24Mi"})), namespace="default")
    made = node.wait_running("default", "a")
    assert "kubepods" not in placed(node, made)
    file = kernel.file_in_container(kernel.MEMORY_LIMIT_FILE)
    seen = node.exec(container_status(made)["containerID"], "cat", file)
    assert seen[1].strip() == str(24 * MI)
    assert cgroups([f"{node.cgroup_root}/kubepods"]) == []
    remove_pod(node, "a")


def get(port: int, path: str) -> JSON:
    """An answer of the read-only port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        found: JSON = json.load(answer)
    return found


def remove_pod(node: Node, name: str) -> None:
    """Delete a pod and wait for it."""
    node.api.delete("pods", "default", name, grace=1)
    node.wait_removed("default", name)
