"""Reboots, shutdowns and power cuts, with the real logind: what the API and the machine show after.

``--cuts N`` cuts the power so often (3), at moments that ``--seed`` draws; the seed is printed.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.api.types import JSON
from tests.nodes.node import VirtualNode, container, pod
from tests.nodes.setup import ADMIN
from tools.env.process import run
from tools.lab.image import build, default_recipe
from tools.lab.uml import UserModeLinux

ORDER = {"name": "order", "hostPath": {"path": "/var/lib/order", "type": "DirectoryOrCreate"}}
MOUNT = {"name": "order", "mountPath": "/order"}


@pytest.fixture(scope="module")
def machine(lab_directory: Path) -> Iterator[UserModeLinux]:
    """A machine whose file system has a journal, as any that loses its power must."""
    disk = lab_directory / "journaled.img"
    # the image's file stays: others have overlays of it
    shutil.copyfile(build(default_recipe()), disk)
    run("tune2fs", "-O", "has_journal", disk)
    made = UserModeLinux(disk, lab_directory / "power", memory_mib=2048)
    made.boot()
    try:
        yield made
    finally:
        made.cut_power()


@pytest.fixture(scope="module")
def shared_node(
    machine: UserModeLinux, lab_directory: Path, virtual_nodes: list[VirtualNode]
) -> VirtualNode:
    """A node of its own for this module."""
    node = VirtualNode(machine, lab_directory)
    virtual_nodes.append(node)
    node.install()
    node.configure(
        "systemd",
        shutdownGracePeriodByPodPriority=[
            {"priority": 0, "shutdownGracePeriodSeconds": 120},
            {"priority": 1000, "shutdownGracePeriodSeconds": 120},
            {"priority": 2000000000, "shutdownGracePeriodSeconds": 60},
        ],
    )
    return node


def shut_down(machine: UserModeLinux, node: VirtualNode) -> None:
    """`systemctl poweroff`, then power on again."""
    machine.power_off(timeout=600)
    machine.boot()
    node.wait_ready()


def pods_by_name(node: VirtualNode) -> dict[str, JSON]:
    """All pods."""
    return {item["metadata"]["name"]: item for item in node.get("pods")["items"]}


def logging_pod(name: str, **spec: object) -> JSON:
    """A pod that writes its name and the moment when it is asked to end."""
    script = f"trap 'echo {name} >> /order/log; exit 0' TERM; while :; do sleep 1 & wait $!; done"
    hook = {"exec": {"command": ["sh", "-c", f"echo hook-{name} >> /order/log"]}}
    main = container(script=script, volumeMounts=[MOUNT], lifecycle={"preStop": hook})
    return pod(name, main, volumes=[ORDER], terminationGracePeriodSeconds=100, **spec)


def test_a_shutdown_ends_pods_by_priority_and_reports_them(
    machine: UserModeLinux, node: VirtualNode
) -> None:
    node.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    sidecar = container(
        "side",
        "trap 'echo side >> /order/log; exit 0' TERM; while :; do sleep 1 & wait $!; done",
        restartPolicy="Always",
        volumeMounts=[MOUNT],
    )
    low = logging_pod("low", initContainers=[sidecar])
    node.run_pods(low, logging_pod("high", priorityClassName="high"))
    shut_down(machine, node)
    order = node.read("/var/lib/order/log").splitlines()
    assert order == ["hook-low", "low", "side", "hook-high", "high"]
    for item in pods_by_name(node).values():
        status = item["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        (disruption,) = (
            each for each in status["conditions"] if each["type"] == "DisruptionTarget"
        )
        assert disruption["reason"] == "TerminationByKubelet"


def test_pods_are_back_after_a_reboot(machine: UserModeLinux, node: VirtualNode) -> None:
    """Without graceful shutdown: containers run again, init containers first."""
    node.configure("systemd")
    say = "date +%s >> /order"
    init = container("first", f"{say}/init; sleep 1", volumeMounts=[MOUNT])
    main = container(
        script=f"{say}/main; trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done",
        volumeMounts=[MOUNT],
    )
    static = pod("static")
    node.write("/etc/kubernetes/manifests/static.json", json.dumps(static))
    node.run_pods(pod("back", main, initContainers=[init], volumes=[ORDER]))
    node.wait_pods("static-node")
    shut_down(machine, node)
    restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    node.wait_pods("back", "static-node", condition=restarted)
    node.wait_pods("back", "static-node")
    found = pods_by_name(node)
    status = found["back"]["status"]
    (first,) = status["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert first["restartCount"] == 1
    starts = {
        name: [int(line) for line in node.read(f"/var/lib/order/{name}").splitlines()]
        for name in ("init", "main")
    }
    assert len(starts["init"]) == len(starts["main"]) == 2
    assert starts["init"][1] + 1 <= starts["main"][1]
    node.shell("rm /etc/kubernetes/manifests/static.json")


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
        forever = "; trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
        script += forever if draw.random() < 0.5 else ""
        main = container(
            script=script, volumeMounts=mounts, limits={"memory": "32Mi", "cpu": "200m"}
        )
        pods.append(pod(f"cut{cut}-{number}", main, volumes=volumes, restartPolicy=kind))
    return pods


def test_the_node_recovers_from_power_cuts(
    machine: UserModeLinux, node: VirtualNode, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 30)
    print(f"--seed {seed}")
    draw = random.Random(seed)
    node.configure("systemd")
    words = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "words"}}
    node.apply({**words, "data": {"a": "b"}})
    for cut in range(request.config.getoption("--cuts")):
        node.apply(*load(draw, cut))
        if cut:
            node.kubectl("delete", "pod", f"cut{cut - 1}-0", f"cut{cut - 1}-1", "--wait=false")
        moment = draw.uniform(0, 12)
        time.sleep(moment)
        # the embedded API may lose the last seconds' writes with the power: it does not wait for
        # the disk, as its page says; what was there before this cut's load is there afterwards
        shown = {
            name: item["metadata"]["uid"]
            for name, item in pods_by_name(node).items()
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
        known = pods_by_name(node)
        for name, uid in shown.items():
            kept = name in known and known[name]["metadata"]["uid"] == uid
            assert kept or name.startswith(f"cut{cut - 1}-"), f"{where}: {name} is lost"
        nothing_left(node, known, where)
        node.kubectl("delete", "pods", "--all", "--timeout=290s") if cut % 3 == 2 else None
    node.remove_pods()
    nothing_left(node, {}, "at the end")


def settled(node: VirtualNode, where: str) -> None:
    """No pod is stuck: each runs or has ended, and deleted ones are removed."""
    read = f"kubectl --kubeconfig={ADMIN} get pods --no-headers"
    stuck = "Pending|ContainerCreating|Terminating|Unknown|Init:|Error.*Always"
    try:
        node.until(f"! {read} | grep -E '{stuck}'", timeout=300, say=f"{read}; kubeletpy explain")
    except Exception as error:
        error.add_note(where)
        raise


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
