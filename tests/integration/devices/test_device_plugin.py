"""Containers find the devices of a plugin, and keep them over restarts of everybody."""

from __future__ import annotations

import json
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.devices.conftest import RESOURCE, PluginProcess
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env.waiting import wait_until


def requesting(number: int = 1, name: str = "main", **more: Any) -> JSON:
    return container(name, resources={"limits": {RESOURCE: str(number)}}, **more)


def amounts(node: Node) -> tuple[str | None, str | None]:
    """Capacity and allocatable of the node."""
    found = (node.api.find("nodes", "", node.name) or {}).get("status", {})
    return found.get("capacity", {}).get(RESOURCE), found.get("allocatable", {}).get(RESOURCE)


def wait_amounts(node: Node, capacity: str, allocatable: str) -> None:
    wait_until(
        lambda: amounts(node) == (capacity, allocatable) or None,
        f"the node has {capacity}, {allocatable}; it has {amounts(node)}",
        timeout=30,
    )


def variables(node: Node, found: JSON, name: str = "main") -> dict[str, str]:
    entry = container_status(found, name)
    code, stated = node.exec(entry["containerID"], "env")
    assert code == 0, stated
    return dict(line.split("=", 1) for line in stated.splitlines() if "=" in line)


def test_a_container_finds_its_devices(node2: Node, plugin: PluginProcess, namespace: str) -> None:
    wait_amounts(node2, "3", "3")
    node2.apply(
        pod("p", requesting(2, env=[{"name": "FROM", "value": "spec"}])), namespace=namespace
    )
    found = node2.wait_running(namespace, "p")
    entry = container_status(found)
    seen = variables(node2, found)
    assert seen["DEVICES"] == "d1,d2", "the plugin prefers the last ones"
    assert seen["FROM"] == "spec", "the container's own variable is in force"
    assert seen["FROM_CDI"] == "yes"
    for each in ("d1", "d2"):
        assert node2.exec(entry["containerID"], "sh", "-c", f"echo x > /dev/{each}")[0] == 0
    code, stated = node2.exec(entry["containerID"], "cat", "/from-plugin/devices.json")
    assert (code, json.loads(stated)) == (0, plugin.devices())
    assert node2.exec(entry["containerID"], "touch", "/from-plugin/x")[0] != 0
    record = node2.containers(namespace, "p")["main"]
    assert record.annotations["devices.example/ids"] == "d1,d2"
    assert plugin.calls("PreStartContainer")[-1] == "d1,d2"
    reported = entry["allocatedResourcesStatus"]
    assert [each["name"] for each in reported] == [RESOURCE]
    assert {each["health"] for each in reported[0]["resources"]} == {"Healthy"}
    assert node2.metric("kubelet_device_plugin_registration_total", resource_name=RESOURCE) >= 1


def test_health_is_shown(node2: Node, plugin: PluginProcess, namespace: str) -> None:
    node2.apply(pod("p", requesting()), namespace=namespace)
    found = node2.wait_running(namespace, "p")
    ill = variables(node2, found)["DEVICES"]
    try:
        plugin.now(**{each: "Unhealthy" if each == ill else "Healthy" for each in plugin.devices()})
        node2.wait_pod(
            namespace,
            "p",
            lambda p: (
                container_status(p)["allocatedResourcesStatus"][0]["resources"]
                == [{"resourceID": ill, "health": "Unhealthy"}]
            ),
            "shows that its device is not healthy",
        )
        wait_amounts(node2, "3", "2")
    finally:
        plugin.now(d0="Healthy", d1="Healthy", d2="Healthy")
    wait_amounts(node2, "3", "3")


def test_agent_and_plugin_are_killed(node2: Node, plugin: PluginProcess, namespace: str) -> None:
    node2.apply(pod("p", requesting(2)), namespace=namespace)
    before = container_status(node2.wait_running(namespace, "p"))
    has = variables(node2, node2.pod(namespace, "p"))["DEVICES"]
    plugin.kill()
    wait_amounts(node2, "3", "0")
    node2.kill()
    node2.start_agent()
    wait_amounts(node2, "0", "0")
    after = container_status(node2.wait_running(namespace, "p"))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    plugin.start()
    wait_amounts(node2, "3", "3")
    node2.apply(pod("other", requesting()), namespace=namespace)
    other = variables(node2, node2.wait_running(namespace, "other"))["DEVICES"]
    assert not set(other.split(",")) & set(has.split(",")), "given twice"
    starts = len(plugin.calls("PreStartContainer"))
    allocations = len(plugin.calls("Allocate"))
    node2.exec(after["containerID"], "kill", "1")
    node2.wait_pod(
        namespace,
        "p",
        lambda p: (
            container_status(p)["restartCount"] == 1 and container_status(p)["state"].get("running")
        ),
        "has restarted its container",
        timeout=40,
    )
    assert variables(node2, node2.pod(namespace, "p"))["DEVICES"] == has
    assert len(plugin.calls("PreStartContainer")) == starts + 1
    assert len(plugin.calls("Allocate")) == allocations
    assert status(node2.pod(namespace, "p"))["phase"] == "Running"


def test_a_runtime_that_takes_no_cdi_devices_makes_no_container(
    node16: Node, namespace: str
) -> None:
    plugin = PluginProcess(node16)
    plugin.start()
    try:
        wait_amounts(node16, "3", "3")
        node16.apply(pod("p", requesting()), namespace=namespace)
        refused = node16.wait_waiting(namespace, "p", "CreateContainerError")
        assert "takes no CDI devices" in refused["state"]["waiting"]["message"]
        assert not node16.containers(namespace, "p")
    finally:
        plugin.close()
