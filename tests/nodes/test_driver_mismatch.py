"""A runtime on cgroupfs beside an agent on systemd: the node reports it, also when it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import VirtualNode, container, pod
from tests.nodes.setup import ADMIN

SENTENCE = (
    "cgroup driver mismatch: the container runtime uses cgroupfs, but the agent's configuration has"
    ' cgroupDriver systemd: set "cgroupDriver: cgroupfs" there, or "SystemdCgroup = true" in'
    " containerd's configuration (options of runtime runc)"
)
LEFT = (
    "cgroup driver mismatch: containers of default/before run outside /kubepods.slice, where a"
    " container runtime with another cgroup driver put them, so the limits of their pods do not"
    " hold: delete these pods"
)
SOME = {"cpu": "100m", "memory": "32Mi"}


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node whose runtime has another driver; no sandbox has been made yet."""
    node.forget_settings()
    node.configure("systemd", runtime="cgroupfs")
    yield node
    node.forget_settings()


def ready(node: VirtualNode) -> JSON:
    """The node's condition."""
    (found,) = (
        each for each in node.get("node", "node")["status"]["conditions"] if each["type"] == "Ready"
    )
    return dict(found)


def await_message(node: VirtualNode, text: str) -> None:
    """Wait until the condition's message has a text in it."""
    path = '{.status.conditions[?(@.type=="Ready")].message}'
    reported = f"kubectl --kubeconfig={ADMIN} get node node -o jsonpath='{path}'"
    node.until(
        f"{reported} | grep -qF '{text}'", timeout=300, say=f"{reported}; kubeletpy explain --node"
    )


@pytest.mark.long  # tests/integration/cgroups has the same with a containerd of each side
@pytest.mark.suite("bookworm", "trixie")  # their containerd does not report its driver
def test_a_mismatch_is_named_and_lasts_until_no_container_is_left_outside(
    node: VirtualNode,
) -> None:
    start = node.shell("date '+%Y-%m-%d %H:%M:%S'")
    node.apply(pod("before", container(limits=SOME)))
    await_message(node, "the container runtime uses cgroupfs")
    condition = ready(node)
    assert (condition["status"], condition["reason"]) == ("False", "KubeletNotReady")
    assert SENTENCE in condition["message"]
    node.wait_pods("before")
    before = node.container_group(node.get("pod", "before"))
    assert before.startswith("system.slice/kubepods-pod")
    assert before.count(":") == 2
    # the log has it once, as an error
    journal = node.shell(f"journalctl -u kubeletpy -p err -o cat --since '{start}'").splitlines()
    assert len([line for line in journal if SENTENCE in line.replace('\\"', '"')]) == 1
    (event,) = (
        each
        for each in node.get("events")["items"]
        if each["reason"] == "CgroupDriverMismatch" and each["message"] == SENTENCE
    )
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "Node")
    assert SENTENCE in " ".join(node.shell("kubeletpy explain --node").split())

    # reconfigured, but the old container has no limits of its pod yet
    node.configure_containerd("systemd")
    node.shell("systemctl restart containerd")
    await_message(node, LEFT)
    assert ready(node)["status"] == "False"
    tolerations = [{"operator": "Exists"}]  # of the taint of a node that is not ready
    node.run_pods(pod("after", container(limits=SOME), tolerations=tolerations))
    after = node.container_group(node.get("pod", "after"))
    assert after.startswith("kubepods.slice/kubepods-pod")
    await_message(node, LEFT)

    # the agent reports it after a restart, too
    node.shell("systemctl restart kubeletpy")
    node.until("kubeletpy explain --node | tr -s ' \\n' ' ' | grep -qF 'of default/before run'")
    await_message(node, LEFT)
    node.kubectl("delete", "pod", "before", "--timeout=120s")
    node.wait_ready()
    status = node.get("pod", "after")["status"]["containerStatuses"][0]
    assert (status["restartCount"], status["ready"]) == (0, True)
    assert "mismatch" not in json.dumps(node.get("node", "node")["status"]["conditions"])


@pytest.mark.suite("testing")
def test_the_driver_that_a_runtime_reports_counts(node: VirtualNode) -> None:
    """The kubelet does the same. containerd reports its driver from 2.0 on."""
    node.run_pods(pod("runs", container(limits=SOME)))
    assert node.container_group(node.get("pod", "runs")).startswith("kubepods/pod")
    assert ready(node)["status"] == "True"
    journal = node.shell("journalctl -u kubeletpy -b -o cat")
    assert "the runtime's cgroup driver is used, not the one of the configuration" in journal
