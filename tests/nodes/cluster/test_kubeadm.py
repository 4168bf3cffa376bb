"""kubeadm on virtual nodes: its control plane changes hands, and the agent joins and begins one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.probes.schedule import RESTART_SLACK_S
from tests.cluster.kept import AGENT, KUBELET, kept_fields, side_at
from tests.cluster.rich_pods import differences
from tests.cluster.watching import watched
from tests.nodes.cluster.cluster import Namespace
from tests.nodes.cluster.kubeadm_files import VERSION
from tests.nodes.cluster.kubeadm_images import COMPONENTS, PROXY
from tests.nodes.cluster.kubeadm_machines import KubeadmMachines, kubeadm_machines
from tests.nodes.cluster.kubeadm_node import KubeadmNode
from tests.nodes.cluster.objects import spec_of, workload
from tests.nodes.guest import HasEvidence
from tests.nodes.node import SLEEPS, container
from tools.env.waiting import wait_until

pytestmark = pytest.mark.timeout(7200)
MINOR = VERSION.rpartition(".")[0]
SWITCHES = 4
PODS = len(COMPONENTS) + 1
"""On a node of a control plane: the static pods and kube-proxy."""
WATCH_S = 30
SETTLED_S = 15.0
"""Seconds after a switch: longer than the period of each probe."""
UNREADY = re.compile(r'(Ready|ready): ("True" -> "False"|true -> false)$')
"""The Go kubelet shows a static pod as not Ready from its start until it has probed it."""
_GAP = re.compile(r"([\d.]+ s) from the stop of the one program")


@pytest.fixture(scope="module")
def machines(
    lab_directory: Path, journaled_disk: Path, suite: str, evidence: list[HasEvidence]
) -> Iterator[KubeadmMachines]:
    """Machines for kubeadm; none has booted."""
    with kubeadm_machines(lab_directory / "kubeadm", journaled_disk, suite) as made:
        yield made
        for each in made.made:
            evidence.remove(each)


@pytest.fixture(scope="module")
def plane(machines: KubeadmMachines, evidence: list[HasEvidence]) -> KubeadmNode:
    """The node of a control plane that `kubeadm init` made with the Go kubelet."""
    began = time.monotonic()
    node = machines.boot()
    evidence.append(node)
    installed = time.monotonic()
    node.init()
    print(
        f"installed in {installed - began:.0f} s, kubeadm init {time.monotonic() - installed:.0f} s"
    )
    return node


@pytest.fixture(scope="module")
def worker(
    plane: KubeadmNode, machines: KubeadmMachines, evidence: list[HasEvidence]
) -> KubeadmNode:
    """A machine with the agent in the kubelet's place; kubeadm has not run on it."""
    node = machines.boot()
    evidence.append(node)
    node.use_agent()
    return node


def await_control_plane(node: KubeadmNode) -> Namespace:
    """Wait until a node, its static pods and its kube-proxy are Ready; their namespace."""
    system = Namespace(node, "kube-system")
    names = [f"pod/{each}-{node.name}" for each in COMPONENTS]
    system.wait_created(f"node/{node.name}", *names)
    system.wait("condition=Ready", f"node/{node.name}", *names)
    system.rollout(f"daemonset/{PROXY}")
    return system


def pods(system: Namespace, node: KubeadmNode) -> dict[str, JSON]:
    """The pods of a control plane's node by name."""
    found = {name: system.get("pod", name) for name in names_of(system, node)}
    assert len(found) == PODS
    return found


def names_of(system: Namespace, node: KubeadmNode) -> list[str]:
    """The names of a node's pods."""
    own = f"--field-selector=spec.nodeName={node.name}"
    return system.kubectl("get", "pods", own, "-o", "jsonpath={.items[*].metadata.name}").split()


def shown_version(system: Namespace, node: KubeadmNode) -> str:
    """The kubelet's version that the Node object states."""
    return str(system.get("node", node.name)["status"]["nodeInfo"]["kubeletVersion"])


class Turns:
    """Replaces the program that runs the control plane's node, again and again."""

    def __init__(self, node: KubeadmNode, system: Namespace) -> None:
        self.node, self._system = node, system
        self.switches: list[tuple[str, float]] = []

    def switch(self) -> None:
        """Replace one program by the other, and wait until the node is well with it."""
        to = KUBELET if self.switches and self.switches[-1][0] == AGENT else AGENT
        began = time.time()
        self.switches.append((to, began))
        command = {
            AGENT: f"kubeletpy adopt --yes --watch {WATCH_S}s",
            KUBELET: "kubeletpy give-back --yes",
        }
        text = self.node.shell(command[to])
        if to == AGENT:
            assert f"{PODS} pods kept, 0 restarted" in text
            assert "confirmed: the node was well" in text
        await_control_plane(self.node)
        version = shown_version(self._system, self.node)
        assert ("kubeletpy" in version) == (to == AGENT), version
        assert version.startswith(MINOR)
        time.sleep(SETTLED_S)
        gap = _GAP.search(text)
        assert gap is not None, text
        print(f"to the {to}: health check after {gap[1]}, in all {time.time() - began:.0f} s")


def test_switches_leave_the_control_plane_running(plane: KubeadmNode) -> None:
    system = await_control_plane(plane)
    time.sleep(RESTART_SLACK_S)  # younger containers are judged anew, by both programs
    before, tasks = pods(system, plane), plane.tasks()
    assert len(tasks) == 2 * PODS
    kept = {name: kept_fields(each) for name, each in before.items()}
    problems: list[str] = []
    with watched(system, "pods") as changes:
        wait_until(lambda: len(changes) >= len(kept), "the watch", timeout=60)
        turns = Turns(plane, system)
        for number in range(1, SWITCHES + 1):
            turns.switch()
            problems += [f"{number}: {each}" for each in set(tasks) ^ set(plane.tasks())]
        after = pods(system, plane)
    assert changes[-1].at > turns.switches[-1][1], "the watch has not seen the last switch"
    unready: list[str] = []
    for each in changes:
        side = side_at(each.at, turns.switches)
        for one in differences(kept[each.name], kept_fields(each.item)):
            found = unready if UNREADY.search(one) and side.endswith(KUBELET) else problems
            found.append(f"{side}: {each.name}: {one}")
    print("not Ready under the Go kubelet:", *dict.fromkeys(unready), sep="\n")
    for name, fields in kept.items():
        problems += differences(fields, kept_fields(after[name]), f"at the end: {name}")
    assert not problems, "\n".join(dict.fromkeys(problems))


def test_a_node_joins_runs_pods_and_is_reset(plane: KubeadmNode, worker: KubeadmNode) -> None:
    default, name = Namespace(plane, "default"), worker.name
    system = Namespace(plane, "kube-system")
    began = time.monotonic()

    def note(what: str) -> None:
        print(f"{what} {time.monotonic() - began:.0f} s after the join began")

    worker.join(plane)
    note("kubeadm was done")
    default.wait_created(f"node/{name}")
    default.wait("condition=Ready", f"node/{name}")
    note("the node was Ready")
    system.rollout(f"daemonset/{PROXY}")
    note("kube-proxy ran")
    assert worker.shell("ls /etc/kubernetes/*.conf") == "/etc/kubernetes/kubelet.conf"
    assert "/var/lib/kubelet/pki/kubelet-client-current.pem" in worker.read(
        "/etc/kubernetes/kubelet.conf"
    )
    script = f"echo from $(hostname); {SLEEPS}"
    spec = spec_of(container(script=f"trap 'exit 0' TERM; {script}"))
    default.apply(workload("Deployment", "joined", spec, replicas=2))
    default.rollout("deployment/joined")
    note("two pods ran")
    for each in default.pods("joined"):
        pod = each["metadata"]["name"]
        assert each["spec"]["nodeName"] == name
        assert default.kubectl("logs", pod) == f"from {pod}"
        assert default.kubectl("exec", pod, "--", "hostname") == pod
        # through the node's kube-proxy, without TLS: busybox has no signature that Go accepts
        script = "echo GET / HTTP/1.0 | nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
        answer = default.kubectl("exec", pod, "--", "sh", "-c", script)
        assert "Client sent an HTTP request to an HTTPS server" in answer
    default.kubectl("delete", "deployment/joined", "--cascade=foreground")
    default.kubectl("drain", name, "--ignore-daemonsets", "--timeout=600s")
    default.kubectl("delete", "node", name)
    worker.reset()
    note("the node was reset")
    assert worker.left() == ""


def test_the_agent_begins_a_control_plane(worker: KubeadmNode) -> None:
    began = time.monotonic()

    def note(what: str) -> None:
        print(f"{what} {time.monotonic() - began:.0f} s after kubeadm init began")

    worker.init()
    note("kubeadm was done")
    system = await_control_plane(worker)
    note("the control plane was Ready")
    tasks = worker.tasks()
    assert len(tasks) == 2 * PODS
    # it began without an API server whose version it could take; kubeadm has restarted it since
    assert shown_version(system, worker).startswith(f"{MINOR}.0+kubeletpy")
    worker.shell("systemctl restart kubelet")
    await_control_plane(worker)
    assert worker.tasks() == tasks
    worker.reset()
    assert worker.left() == ""
