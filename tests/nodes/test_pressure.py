"""Pressure (PSI) of node, pods and containers: the agent reports the totals of the kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.guest import WITHIN_S
from tests.nodes.node import VirtualNode, container, pod
from tools.env.waiting import wait_until

pytestmark = pytest.mark.machine("qemu")
NODE = "/api/v1/nodes/node/proxy"
BUSY = "while :; do :; done & while :; do :; done"
"""A script of two processes that use a processor each."""
RESOURCES = ("cpu", "memory", "io")


def kernel_total(text: str, kind: str) -> int:
    """Microseconds of a line of a pressure file."""
    found = re.search(rf"^{kind} .*total=(\d+)$", text, re.MULTILINE)
    assert found, text
    return int(found[1])


def totals(node: VirtualNode, directory: str) -> dict[str, tuple[int, int]]:
    """Resource -> microseconds of "some" and "full", of the files of a cgroup."""
    texts = {each: node.read(f"{directory}/{each}.pressure") for each in RESOURCES}
    return {
        each: (kernel_total(text, "some"), kernel_total(text, "full"))
        for each, text in texts.items()
    }


def reported(stats: JSON) -> dict[str, tuple[int, int]]:
    """The same, of a part of the summary."""
    return {
        each: (stats[each]["psi"]["some"]["total"], stats[each]["psi"]["full"]["total"])
        for each in RESOURCES
    }


def stalls(lines: Sequence[str], resource: str, kind: str) -> int:
    """Microseconds of one of the metrics of the container, "waiting" or "stalled"."""
    name = f"container_pressure_{resource}_{kind}_seconds_total{{"
    found = (line for line in lines if line.startswith(name) and 'container="main"' in line)
    (line,) = (line for line in found if 'pod="busy"' in line)
    return round(float(line.split()[1]) * 1e6)


def compare(
    kernel: Callable[[], dict[str, tuple[int, int]]],
    agent: Callable[[], dict[str, tuple[int, int]]],
) -> None:
    """The agent's totals, once they are newer than the kernel's of now, are not beyond them."""
    before = kernel()

    def newer() -> dict[str, tuple[int, int]] | None:
        reported = agent()
        fresh = all(
            value >= old
            for each in RESOURCES
            for value, old in zip(reported[each], before[each], strict=True)
        )
        return reported if fresh else None

    # a summary may be older than the pod
    early = (KeyError, ValueError)
    reported = wait_until(newer, "totals that are newer", timeout=WITHIN_S, interval=1, retry=early)
    assert reported is not None
    after = kernel()
    for each in RESOURCES:
        for value, limit in zip(reported[each], after[each], strict=True):
            assert value <= limit


def test_pressure_is_that_of_the_kernel(node: VirtualNode) -> None:
    node.configure("systemd")
    busy = container(script=BUSY, limits={"cpu": "100m"})
    node.run_pods(pod("busy", busy))
    item = node.get("pod", "busy")
    group = f"/sys/fs/cgroup/{node.group_of(item)}"
    below = f"/sys/fs/cgroup/{node.container_group(item)}"

    def summary() -> JSON:
        found: JSON = json.loads(node.kubectl("get", "--raw", f"{NODE}/stats/summary"))
        return found

    def of_pod() -> JSON:
        pods: list[JSON] = summary()["pods"]
        (found,) = (each for each in pods if each["podRef"]["name"] == "busy")
        return found

    def of_metrics() -> dict[str, tuple[int, int]]:
        lines = node.kubectl("get", "--raw", f"{NODE}/metrics/cadvisor").splitlines()
        return {
            each: (stalls(lines, each, "waiting"), stalls(lines, each, "stalled"))
            for each in RESOURCES
        }

    compare(lambda: totals(node, group), lambda: reported(of_pod()))
    compare(lambda: totals(node, below), lambda: reported(of_pod()["containers"][0]))
    compare(lambda: totals(node, below), of_metrics)
    # its two processes wait for a tenth of a processor
    psi = of_pod()["containers"][0]["cpu"]["psi"]["some"]
    assert psi["total"] > 0
    assert max(psi["avg10"], psi["avg60"]) > 0
    machine = summary()["node"]
    proc = {each: node.read(f"/proc/pressure/{each}") for each in RESOURCES}
    for each, (some, full) in reported(machine).items():
        assert some <= kernel_total(proc[each], "some")
        assert full <= kernel_total(proc[each], "full")
    assert machine["cpu"]["psi"]["some"]["total"] > 0
