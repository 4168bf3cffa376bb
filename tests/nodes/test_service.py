"""deploy's unit under systemd: watchdog, restarts, the journal."""

from __future__ import annotations

import json

import pytest

from tests.nodes.node import VirtualNode, container, pod
from tests.nodes.setup import ADMIN

UNIT = "kubeletpy.service"


@pytest.fixture
def node(node: VirtualNode) -> VirtualNode:
    """A node on the systemd driver."""
    node.configure("systemd")
    return node


def reported(node: VirtualNode, *properties: str) -> dict[str, str]:
    """Properties of the unit."""
    parts = " ".join(f"-p {name}" for name in properties)
    return dict(
        line.split("=", 1) for line in node.shell(f"systemctl show {UNIT} {parts}").splitlines()
    )


def restarted(node: VirtualNode, before: dict[str, str], timeout: float = 180) -> None:
    """Wait until systemd has an agent that is another process than before, and has started."""
    node.until(
        f"[ $(systemctl show {UNIT} -P MainPID) -ne {before['MainPID']} ]"
        f" && [ $(systemctl show {UNIT} -P ActiveState) = active ]",
        timeout=timeout,
        say=f"systemctl status {UNIT}",
    )


def containers(node: VirtualNode) -> dict[str, tuple[str, int]]:
    """Container and number of restarts of each pod."""
    return {
        item["metadata"]["name"]: (each["containerID"], each["restartCount"])
        for item in node.get("pods")["items"]
        for each in item["status"]["containerStatuses"]
    }


def test_the_agent_notifies_systemd(node: VirtualNode) -> None:
    found = reported(node, "ActiveState", "Type", "WatchdogUSec", "NRestarts", "StatusText")
    assert found["ActiveState"] == "active"
    assert (found["Type"], found["WatchdogUSec"]) == ("notify", "1min")


def test_a_killed_agent_is_started_again(node: VirtualNode) -> None:
    node.run_pods(pod("kept"))
    before, process = containers(node), reported(node, "MainPID")
    node.shell(f"kill -9 {process['MainPID']}")
    restarted(node, process)
    node.wait_ready()
    assert containers(node) == before


def test_lines_of_the_journal_have_levels(node: VirtualNode) -> None:
    node.apply(pod("broken", container(image="kubeletpy.local/none:1", imagePullPolicy="Never")))
    node.wait_pods(
        "broken",
        condition="jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImageNeverPull",
    )
    lines = node.shell(f"journalctl -u {UNIT} -b -o json --output-fields=PRIORITY,MESSAGE")
    entries = [json.loads(line) for line in lines.splitlines()]
    levels = {entry["PRIORITY"] for entry in entries}
    assert {"6"} < levels <= {"3", "4", "5", "6", "7"}
    assert not [entry for entry in entries if str(entry["MESSAGE"]).startswith("<")]


@pytest.mark.long
def test_a_restart_keeps_thirty_pods_as_they_are(node: VirtualNode) -> None:
    names = [f"kept-{number}" for number in range(30)]
    node.run_pods(*(pod(name) for name in names))
    before, process = node.get("pods")["items"], reported(node, "MainPID")
    fields = ["metadata.name", "status.phase", "status.containerStatuses[0].ready"]
    columns = ",".join(f"{number}:.{field}" for number, field in enumerate(fields))
    node.shell(
        "systemd-run --quiet --unit=lab-watch --property=StandardOutput=file:/tmp/watched"
        f" kubectl --kubeconfig={ADMIN} get pods --watch --no-headers -o custom-columns={columns}"
    )
    try:
        node.until(f"[ $(wc -l < /tmp/watched) -ge {len(names)} ]")
        node.shell("systemctl restart kubeletpy")
        node.wait_ready()
        assert reported(node, "MainPID") != process
        node.run_pods(pod("later"))
        watched = [line.split() for line in node.read("/tmp/watched").splitlines()]
    finally:
        node.shell("systemctl stop lab-watch; rm -f /tmp/watched")
    changed = {tuple(line) for line in watched if line[0] in names}
    assert changed == {(name, "Running", "true") for name in names}
    after = [item for item in node.get("pods")["items"] if item["metadata"]["name"] in names]
    for old, new in zip(before, after, strict=True):
        for volatile in ("resourceVersion", "managedFields"):
            old["metadata"].pop(volatile, None)
            new["metadata"].pop(volatile, None)
        assert new == old


@pytest.mark.long
def test_a_hung_agent_is_replaced(node: VirtualNode) -> None:
    """A stopped process does not notify the watchdog, so systemd kills it and starts another."""
    node.run_pods(pod("kept"))
    before, process = containers(node), reported(node, "MainPID", "NRestarts")
    node.shell(f"kill -STOP {process['MainPID']}")
    restarted(node, process, timeout=300)
    node.wait_ready()
    assert containers(node) == before
    group = node.container_group(node.get("pod", "kept"))
    assert node.kernel(group, "pids.current") != {"pids.current": "0"}
    assert int(reported(node, "NRestarts")["NRestarts"]) == int(process["NRestarts"]) + 1
    assert "Watchdog timeout" in node.shell(f"journalctl -u {UNIT} -b -o cat -n 200")
