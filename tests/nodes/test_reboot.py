"""Shutdowns and reboots with the real logind: what the API and the machine show afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.device_plugin import RESOURCE, device_plugin
from tests.nodes.node import SLEEPS, VirtualNode, container, pod
from tools.lab.machine import Machine

ORDER = {"name": "order", "hostPath": {"path": "/var/lib/order", "type": "DirectoryOrCreate"}}
MOUNT = {"name": "order", "mountPath": "/order"}
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
GRACE = [
    {"priority": 0, "shutdownGracePeriodSeconds": 120},
    {"priority": 1000, "shutdownGracePeriodSeconds": 120},
    {"priority": 2000000000, "shutdownGracePeriodSeconds": 60},
]
WAYS = ("reboot", pytest.param("poweroff", marks=pytest.mark.long))
STATIC = "/etc/kubernetes/manifests/static.json"


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node with a static pod."""
    node.write(STATIC, json.dumps(pod("static")))
    yield node
    node.shell(f"rm {STATIC}")


def shut_down(machine: Machine, node: VirtualNode, how: str) -> None:
    """`systemctl reboot`, or `systemctl poweroff` and power on again; wait for a Ready node."""
    boot = node.read("/proc/sys/kernel/random/boot_id")
    if how == "reboot":
        machine.reboot(timeout=900)
    else:
        machine.power_off(timeout=600)
        machine.boot()
    assert node.read("/proc/sys/kernel/random/boot_id") != boot
    node.wait_ready()


def restarts(node: VirtualNode) -> dict[str, int]:
    """Pod -> how often its first container was restarted; a runtime may fail to start one."""
    return {
        name: item["status"]["containerStatuses"][0]["restartCount"]
        for name, item in node.pods().items()
    }


def wait_restarted(node: VirtualNode, before: dict[str, int], *names: str) -> None:
    """Wait until pods are Ready again, each restarted once more than ``before``."""
    for name in names:
        path = "{.status.containerStatuses[0].restartCount}"
        node.wait_pods(name, condition=f"jsonpath={path}={before[name] + 1}")
    node.wait_pods(*names)


def logging_pod(name: str, **spec: object) -> JSON:
    """A pod that writes its name when its preStop hook runs and when it gets SIGTERM."""
    hook = {"exec": {"command": ["sh", "-c", f"echo hook-{name} >> /order/log"]}}
    main = container(
        script=f"trap 'echo {name} >> /order/log; exit 0' TERM; {SLEEPS}",
        volumeMounts=[MOUNT],
        lifecycle={"preStop": hook},
    )
    return pod(name, main, volumes=[ORDER], terminationGracePeriodSeconds=100, **spec)


@pytest.mark.long  # tests/integration/lifecycle has the order with a stand-in of logind
@pytest.mark.parametrize("how", WAYS)
def test_a_shutdown_ends_pods_by_priority_and_reports_them(
    machine: Machine, node: VirtualNode, how: str
) -> None:
    node.configure("systemd", shutdownGracePeriodByPodPriority=GRACE)
    node.shell("rm -f /var/lib/order/log")
    node.apply(HIGH)
    sidecar = container(
        "side",
        f"trap 'echo side >> /order/log; exit 0' TERM; {SLEEPS}",
        restartPolicy="Always",
        volumeMounts=[MOUNT],
    )
    node.run_pods(
        logging_pod("low", initContainers=[sidecar]),
        logging_pod("high", priorityClassName="high"),
        logging_pod("critical", priorityClassName="system-node-critical"),
    )
    node.wait_pods("static-node")
    before = restarts(node)
    shut_down(machine, node, how)
    order = node.read("/var/lib/order/log").splitlines()
    assert order == ["hook-low", "low", "side", "hook-high", "high", "hook-critical", "critical"]
    wait_restarted(node, before, "static-node")
    found = node.pods()
    for name in ("low", "high", "critical"):
        status = found[name]["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        (disruption,) = (
            each for each in status["conditions"] if each["type"] == "DisruptionTarget"
        )
        assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
        (main,) = status["containerStatuses"]
        ended = main["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert (main["restartCount"], main["ready"]) == (before[name], False)
    (side,) = found["low"]["status"]["initContainerStatuses"]
    assert side["state"]["terminated"]["exitCode"] == 0
    assert side["restartCount"] == 0


@pytest.mark.parametrize("how", WAYS)
def test_pods_are_back_after_a_shutdown(machine: Machine, node: VirtualNode, how: str) -> None:
    """Without graceful shutdown: containers run again, init containers first."""
    node.configure("systemd")
    node.shell("rm -rf /var/lib/order")
    say = "date +%s >> /order"
    init = container("first", f"{say}/init; sleep 1", volumeMounts=[MOUNT])
    main = container(script=f"{say}/main; trap 'exit 0' TERM; {SLEEPS}", volumeMounts=[MOUNT])
    node.run_pods(pod("back", main, initContainers=[init], volumes=[ORDER]))
    node.wait_pods("static-node")
    before = restarts(node)
    shut_down(machine, node, how)
    wait_restarted(node, before, "back", "static-node")
    found = node.pods()
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


@pytest.mark.long
def test_devices_are_kept_by_a_plugin_that_comes_back_after_the_agent(
    machine: Machine, node: VirtualNode
) -> None:
    node.configure("systemd")
    with device_plugin(node, "first", "second", delay=10):
        # the plugin prefers the last device, so the first is not what a new pod would get
        node.run_pods(pod("other", container(limits={RESOURCE: "1"})))
        node.run_pods(pod("holder", container(limits={RESOURCE: "1"})))
        node.kubectl("delete", "pod", "other")
        device = "ls /dev/first /dev/second 2>/dev/null || true"
        assert node.kubectl("exec", "holder", "--", "sh", "-c", device) == "/dev/first"
        uid = node.get("pod", "holder")["metadata"]["uid"]
        before = restarts(node)
        shut_down(machine, node, "reboot")
        wait_restarted(node, before, "holder")
        assert node.get("pod", "holder")["metadata"]["uid"] == uid
        assert node.kubectl("exec", "holder", "--", "sh", "-c", device) == "/dev/first"
