"""A boot: how long it is until the node is Ready and its pod runs, beside a boot without either."""

from __future__ import annotations

import json
import time

import pytest

from tests.nodes.node import VirtualNode, pod
from tests.nodes.setup import ADMIN
from tools.lab.machine import Machine

UNITS = "kubeletpy lab-api containerd"


def power_on(machine: Machine) -> float:
    """Switch a machine off and on; seconds from power on until it takes commands."""
    machine.power_off(timeout=600)
    began = time.monotonic()
    machine.boot()
    return time.monotonic() - began


@pytest.mark.long
def test_a_boot_ends_with_a_ready_node_and_its_pod(machine: Machine, node: VirtualNode) -> None:
    node.configure("systemd")
    node.run_pods(pod("first"))
    count = "{.status.containerStatuses[0].restartCount}"
    restarts = int(node.kubectl("get", "pod", "first", "-o", f"jsonpath={count}"))
    node.shell(f"systemctl disable {UNITS}")
    raw = power_on(machine)
    node.shell(f"systemctl enable {UNITS} && sync")
    booted = power_on(machine)
    began = time.monotonic()
    since = int(node.shell("awk '/^btime/ {print $2}' /proc/stat"))
    node.wait_ready()
    # what was Ready before the boot stays so in the API until the agent writes it again
    beats = '{.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}'
    reported = f"kubectl --kubeconfig={ADMIN} get node node -o jsonpath='{beats}'"
    node.until(f'[ "$(date +%s -d "$({reported})")" -ge {since} ]', say=reported)
    ready = booted + time.monotonic() - began
    node.wait_pods("first", condition=f"jsonpath={count}={restarts + 1}")
    node.wait_pods("first")
    running = booted + time.monotonic() - began
    seconds = {"raw boot": raw, "boot": booted, "node Ready": ready, "pod Ready": running}
    print(json.dumps({name: round(each, 1) for name, each in seconds.items()}))
    assert raw <= ready <= running
