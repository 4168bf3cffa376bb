"""Power cuts: the node recovers by itself, nothing is left, and the API has lost nothing old.

``--cuts N`` cuts the power so often (3), at moments that ``--seed`` draws; the seed is printed.
"""

from __future__ import annotations

import random
import time

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import SLEEPS, VirtualNode, container, pod
from tests.nodes.setup import ADMIN
from tools.env.waiting import NotReadyError, wait_until
from tools.lab.machine import Machine


def load(draw: random.Random, cut: int) -> list[JSON]:
    """Pods that start, run and end, with volumes."""
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "words", "configMap": {"name": "words"}},
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    pods = []
    for number in range(4):
        seconds = draw.choice((0, 1, 2, 5))
        script = f"cat /words/*; date > /scratch/at; sleep {seconds}"
        kind = draw.choice(("Always", "OnFailure", "Never"))
        script += f"; trap 'exit 0' TERM; {SLEEPS}" if draw.random() < 0.5 else ""
        main = container(
            script=script,
            volumeMounts=mounts,
            # many cuts leave many pods, all of which the node has to admit
            requests={"memory": "8Mi", "cpu": "10m"},
            limits={"memory": "32Mi", "cpu": "200m"},
        )
        pods.append(pod(f"cut{cut}-{number}", main, volumes=volumes, restartPolicy=kind))
    return pods


@pytest.mark.long
def test_the_node_recovers_from_power_cuts(
    machine: Machine, node: VirtualNode, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 30)
    print(f"--seed {seed}")
    draw = random.Random(seed)
    node.configure("systemd")
    parts = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "words"}}
    node.apply({**parts, "data": {"a": "b"}})
    # pods wait for the ConfigMap, and the agent's configuration is not what the cuts are to test
    node.shell("sync")
    for cut in range(request.config.getoption("--cuts")):
        node.apply(*load(draw, cut))
        if cut:
            old = (f"cut{cut - 1}-0", f"cut{cut - 1}-1")  # unless the last cut has lost them
            node.kubectl("delete", "pod", *old, "--wait=false", "--ignore-not-found")
        moment = draw.uniform(0, 12)
        time.sleep(moment)
        # The embedded API may lose the last seconds' writes with the power: it does not wait for
        # the disk. Objects from before this cut's load are there afterwards.
        reported = {
            name: item["metadata"]["uid"]
            for name, item in node.pods().items()
            if not name.startswith(f"cut{cut}-")
        }
        machine.cut_power()
        begin = time.monotonic()
        machine.boot()
        booted = time.monotonic()
        where = f"seed {seed}, cut {cut} after {moment:.1f} s"
        node.wait_ready()
        print(
            f"{where}: booted in {booted - begin:.0f} s,"
            f" Ready {time.monotonic() - booted:.0f} s later"
        )
        settled(node, where)
        known = node.pods()
        for name, uid in reported.items():
            kept = name in known and known[name]["metadata"]["uid"] == uid
            assert kept or name.startswith(f"cut{cut - 1}-"), f"{where}: {name} is lost"
        nothing_left(node, known, where)
        node.kubectl("delete", "pods", "--all", "--timeout=290s") if cut % 3 == 2 else None
    node.remove_pods()
    nothing_left(node, {}, "at the end")


def settled(node: VirtualNode, where: str) -> None:
    """No pod is stuck: each runs or has ended, and deleted ones are removed."""
    try:
        wait_until(lambda: not stuck(node), "pods that have settled", timeout=300, interval=1)
    except NotReadyError as error:
        reported = node.shell(f"kubectl --kubeconfig={ADMIN} get pods; kubeletpy explain")
        raise AssertionError(f"{where}: {stuck(node)}\n{reported}") from error


def stuck(node: VirtualNode) -> list[str]:
    """Pods that neither run nor have ended.

    A container that containerd has lost with the power has ended (ContainerStatusUnknown).
    """
    waiting = {"ContainerCreating", "PodInitializing"}
    found = []
    for name, item in node.pods().items():
        status = item["status"]
        states = [each["state"] for each in status.get("containerStatuses", ())]
        reasons = {state.get("waiting", {}).get("reason") for state in states}
        if (
            "deletionTimestamp" in item["metadata"]
            or status["phase"] not in ("Running", "Succeeded", "Failed")
            or waiting & reasons
        ):
            found.append(f"{name}: {status['phase']}, {states}")
    return found


def nothing_left(node: VirtualNode, known: dict[str, JSON], where: str) -> None:
    """No mount, cgroup or directory of a pod that the API does not have."""
    uids = {item["metadata"]["uid"] for item in known.values()}
    spelled = {spelling for uid in uids for spelling in (uid, uid.replace("-", "_"))} | {"none"}
    known_to = " ".join(f"-e {each}" for each in sorted(spelled))
    for script in (
        "awk '{print $5}' /proc/self/mountinfo | grep /pods/",
        "find /sys/fs/cgroup -type d -name '*pod*-pod*' -o -type d -name 'kubepods-pod*'",
        "ls -d /var/lib/kubelet/pods/*",
    ):
        node.until(
            f"! {{ {script}; }} | grep -v {known_to}",
            timeout=300,
            say=f"echo '{where}'; {{ {script}; }} | grep -v {known_to}",
        )
