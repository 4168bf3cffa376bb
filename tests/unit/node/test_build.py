"""Building the node object and its status from facts and options."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.quantity import spelled, value
from kubeletpy.base.structs import replace
from kubeletpy.config.flags import NodeFlags
from kubeletpy.node import build
from kubeletpy.node.build import (
    NodeHealth,
    condition_events,
    is_changes,
    network_not_ready,
    node_conditions,
)
from kubeletpy.node.facts import NodeOptions, allocatable, capacity, node_name, with_foreign
from kubeletpy.node.machine import read_machine_facts
from tests.kit.machines import FACTS

GI = 2**30
NOW = 1_800_000_000.0


def options(**fields: Any) -> NodeOptions:
    return NodeOptions(name="n", **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"cpu": "4", "memory": "8Gi", "pods": "110"}),
        ({"kube_reserved": {"cpu": "500m"}, "system_reserved": {"cpu": "1"}}, {"cpu": "2500m"}),
        ({"reserved_cpus": 1, "kube_reserved": {"cpu": "3"}}, {"cpu": "3"}),
        (
            {"kube_reserved": {"memory": "1Gi"}, "eviction_hard": {"memory.available": "100Mi"}},
            {"memory": f"{7 * 1024 - 100}Mi"},
        ),
        ({"eviction_hard": {"nodefs.available": "10%"}}, {"ephemeral-storage": "96636764160"}),
        ({"system_reserved": {"memory": "9Gi"}}, {"memory": "0"}),
        ({"eviction_hard": {"memory.available": "0.00001%"}}, {"memory": "8589933734"}),
        ({"reserved_cpus": 5}, {"cpu": "0"}),
        ({"system_reserved": {"memory": "1500m"}}, {"memory": "8589934590500m"}),
        ({"system_reserved": {"memory": "1M"}}, {"memory": "8588934592"}),
        ({"kube_reserved": {"cpu": "100u"}}, {"cpu": "3999900u"}),
        ({"pods_per_core": 1}, {"pods": "4"}),
        ({"pods_per_core": 10}, {"pods": "40"}),
        ({"pods_per_core": 100}, {"pods": "110"}),
    ],
)
def test_allocatable(fields: dict[str, Any], expected: dict[str, str]) -> None:
    supplied = options(**fields)
    left = allocatable(capacity(FACTS, supplied), supplied)
    assert {key: left[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("health", "status", "message"),
    [
        (NodeHealth(), "True", "kubelet is posting ready status"),
        (
            NodeHealth(runtime_error="container runtime is down"),
            "False",
            "container runtime is down",
        ),
        (
            NodeHealth(
                network_error=network_not_ready("no CNI"), pleg_error="PLEG is not healthy: x"
            ),
            "False",
            "[container runtime network not ready: no CNI, PLEG is not healthy: x]",
        ),
        (NodeHealth(shutting_down=True), "False", "node is shutting down"),
        (NodeHealth(cgroup_error="cgroup driver"), "False", "cgroup driver"),
        (NodeHealth("a", "b", "c", "d", True), "False", "[a, b, d, c, node is shutting down]"),
    ],
)
def test_ready(health: NodeHealth, status: str, message: str) -> None:
    ready = node_conditions([], health, NOW)[-1]
    assert (ready["type"], ready["status"], ready["message"]) == ("Ready", status, message)
    assert ready["reason"] == ("KubeletReady" if status == "True" else "KubeletNotReady")


def test_transition_time_moves_only_with_the_status_and_foreign_conditions_stay() -> None:
    first = node_conditions([{"type": "x/y", "status": "True"}], NodeHealth(), NOW)
    second = node_conditions(first, NodeHealth(), NOW + 10)
    third = node_conditions(second, NodeHealth(runtime_error="down"), NOW + 20)
    assert first[0]["type"] == "x/y" == third[0]["type"]
    assert second[-1]["lastTransitionTime"] == first[-1]["lastTransitionTime"]
    assert second[-1]["lastHeartbeatTime"] != first[-1]["lastHeartbeatTime"]
    assert third[-1]["lastTransitionTime"] != second[-1]["lastTransitionTime"]


def test_without_isolation_of_local_storage_the_node_has_none_to_give() -> None:
    supplied = options(
        local_storage=False,
        kube_reserved={"ephemeral-storage": "1Gi"},
        eviction_hard={"nodefs.available": "10%"},
    )
    total = capacity(FACTS, supplied)
    assert "ephemeral-storage" in capacity(FACTS, options())
    assert "ephemeral-storage" not in total
    assert "ephemeral-storage" not in allocatable(total, supplied)
    assert {"cpu", "memory", "pods"} <= set(allocatable(total, supplied))


def test_ephemeral_storage_is_written_in_decimal_form() -> None:
    supplied = options(kube_reserved={"ephemeral-storage": "1G"})
    total = capacity(replace(FACTS, root_storage_bytes=100_000_000_000), supplied)
    assert total["ephemeral-storage"] == "100G"
    assert allocatable(total, supplied)["ephemeral-storage"] == "99G"
    total = capacity(replace(FACTS, root_storage_bytes=8 << 30), supplied)
    assert total["ephemeral-storage"] == "8589934592"


def test_extended_resources_of_other_writers_are_kept() -> None:
    reported = {"cpu": "99", "vendor.example/gpu": "2", "hugepages-4Mi": "8Mi"}
    total = with_foreign(capacity(FACTS, options()), reported)
    assert total["vendor.example/gpu"] == "2"
    assert total["cpu"] == "4"
    assert "hugepages-4Mi" not in total
    assert allocatable(total, options())["vendor.example/gpu"] == "2"


@pytest.mark.parametrize("memory", [8 * GI, 3 << 40, 24616796 << 10, 12345678901])
def test_amounts_are_spelled_as_the_api_spells_them(memory: int) -> None:
    """Otherwise each status update would find a difference and write it."""
    facts = replace(FACTS, memory_bytes=memory, root_storage_bytes=memory * 3)
    supplied = options(eviction_hard={"memory.available": "100Mi", "nodefs.available": "10%"})
    total = capacity(facts, supplied)
    left = allocatable(total, supplied)
    for amounts in (total, left):
        for name in ("memory", "ephemeral-storage"):
            binary = name == "memory"
            assert spelled(value(amounts[name]), binary=binary) == amounts[name]
    assert value(total["memory"]) == memory


def test_huge_pages_are_taken_out_of_memory() -> None:
    facts = replace(FACTS, huge_pages={2 << 20: 8 << 20, 1 << 30: 0, 64 << 10: 192 << 10})
    total = capacity(facts, options())
    pages = {name: text for name, text in total.items() if name.startswith("hugepages-")}
    assert pages == {"hugepages-1Gi": "0", "hugepages-2Mi": "8Mi", "hugepages-64Ki": "192Ki"}
    left = allocatable(total, options())
    assert left["hugepages-2Mi"] == "8Mi"
    assert left["memory"] == f"{(8 * GI - (8 << 20) - (192 << 10)) // 1024}Ki"


def test_a_heartbeat_alone_is_not_worth_a_write() -> None:
    def status(at: float) -> Any:
        return build.node_status(
            FACTS,
            options(),
            build.RuntimeInfo("containerd", "2.1"),
            node_ips=["10.0.0.1"],
            hostname="host-1",
            images=[],
            health=NodeHealth(),
            old={"conditions": node_conditions([], NodeHealth(), NOW)},
            now=at,
        )

    first: Any = status(NOW)
    assert not is_changes(first, status(NOW + 60))
    assert not is_changes(first | {"volumesAttached": []}, status(NOW + 60)), "of others"
    assert is_changes(first | {"images": [{"sizeBytes": 1}]}, status(NOW))
    assert is_changes({}, status(NOW))
    assert is_changes(first | {"conditions": first["conditions"][:-1]}, status(NOW))
    assert status(NOW)["nodeInfo"]["containerRuntimeVersion"] == "containerd://2.1"
    assert status(NOW)["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "Hostname", "address": "host-1"},
    ]


def test_a_new_node_has_only_its_labels_and_taints() -> None:
    supplied = options(
        labels={"a": "b"},
        taints=[
            {"key": "k", "effect": "NoSchedule"},
            {"key": "l", "effect": "NoExecute", "value": "v"},
        ],
        provider_id="x://1",
        external_cloud_provider=True,
    )
    node = build.new_node(supplied, "host-1", "amd64", {})
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "host-1"
    assert node["metadata"]["labels"]["a"] == "b"
    assert node["spec"]["providerID"] == "x://1"
    assert node["spec"]["taints"] == [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "l", "effect": "NoExecute", "value": "v"},
        {
            "key": "node.cloudprovider.kubernetes.io/uninitialized",
            "value": "true",
            "effect": "NoSchedule",
        },
    ]


def test_an_existing_node_gets_only_what_it_lacks() -> None:
    desired = build.new_node(options(labels={"a": "b"}), "host-1", "amd64", {})
    existing: Any = {"metadata": {"labels": {"kubernetes.io/hostname": "old", "mine": "x"}}}
    patch: Any = build.metadata_patch(existing, desired)
    assert patch["metadata"]["labels"]["kubernetes.io/hostname"] == "host-1"
    assert "a" not in patch["metadata"]["labels"], "labels of the owner are set once"
    assert "mine" not in patch["metadata"]["labels"]
    assert patch["metadata"]["annotations"] == {build.CONTROLLER_ATTACHES: "true"}
    assert build.metadata_patch(desired, desired) is None
    noted: Any = {"metadata": {**desired["metadata"], "labels": {**OWN_LABELS, "x/arch": "no"}}}
    assert build.metadata_patch(noted, desired) is None
    other: Any = {"metadata": {**desired["metadata"], "annotations": {"mine": "x"}}}
    assert build.metadata_patch(other, desired) == {
        "metadata": {"annotations": {build.CONTROLLER_ATTACHES: "true"}}
    }


OWN_LABELS = {
    "kubernetes.io/hostname": "host-1",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}


def test_a_node_without_a_server_publishes_no_port() -> None:
    runtime = build.RuntimeInfo("containerd", "2.1")
    for port, published in ((0, False), (10250, True)):
        supplied = options(kubelet_port=port)
        node: Any = build.initial_node(FACTS, supplied, runtime, node_ips=["10.0.0.1"], now=NOW)
        assert ("daemonEndpoints" in node["status"]) is published


def test_the_complete_node() -> None:
    facts = replace(FACTS, swap_bytes=GI)
    supplied = options(node_ips=["10.0.0.1"], declared_features=["F"], version="v1", kubelet_port=1)
    runtime = build.RuntimeInfo("containerd", "2.1", [{"name": "runc"}], True)
    node: Any = build.initial_node(facts, supplied, runtime, node_ips=["10.0.0.1"], now=NOW)
    total = capacity(facts, supplied)
    assert node == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n",
            "labels": OWN_LABELS,
            "annotations": {build.CONTROLLER_ATTACHES: "true"},
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": "host-1"},
            ],
            "capacity": total,
            "allocatable": allocatable(total, supplied),
            "conditions": node_conditions([], NodeHealth(), NOW),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
            "images": [],
            "nodeInfo": {
                "machineID": "id",
                "systemUUID": "uuid",
                "bootID": "boot",
                "kernelVersion": "6.1.0",
                "osImage": "Debian",
                "containerRuntimeVersion": "containerd://2.1",
                "kubeletVersion": "v1",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "swap": {"capacity": GI},
            },
            "runtimeHandlers": [{"name": "runc"}],
            "features": {"supplementalGroupsPolicy": True},
            "declaredFeatures": ["F"],
        },
    }
    plain = build.RuntimeInfo("containerd", "2.1")
    bare = build.initial_node(FACTS, options(), plain, node_ips=[], now=NOW)["status"]
    assert node["status"].keys() - bare.keys() == {
        "runtimeHandlers",
        "features",
        "declaredFeatures",
    }
    assert "swap" not in bare["nodeInfo"]


@pytest.mark.parametrize("inside", [True, False])
def test_user_namespace_is_reported_true_or_false_or_not_at_all(inside: bool) -> None:
    facts, runtime = replace(FACTS, in_user_namespace=inside), build.RuntimeInfo()

    def info(reported: bool) -> Any:
        supplied = options(report_user_namespace=reported)
        return build.initial_node(facts, supplied, runtime, node_ips=[], now=NOW)["status"][
            "nodeInfo"
        ]

    assert info(True)["runningInUserNamespace"] is inside
    assert "runningInUserNamespace" not in info(False)


def test_a_node_without_annotations() -> None:
    supplied = options(controller_attach_detach=False)
    node = build.new_node(supplied, "host-1", "amd64", {})
    assert node["metadata"] == {"name": "n", "labels": OWN_LABELS}


@pytest.mark.parametrize(
    ("in_use", "reported", "listed"),
    [
        (None, None, None),
        (None, ["a"], ["a"]),
        ([], None, None),
        ([], ["a"], []),
        (["b"], None, ["b"]),
        (["b"], ["a"], ["b"]),
    ],
)
def test_volumes_in_use(in_use: Any, reported: Any, listed: Any) -> None:
    old: Any = {} if reported is None else {"volumesInUse": reported}
    made = build.with_volumes_in_use({"phase": "x"}, in_use, old)
    assert made == ({"phase": "x"} if listed is None else {"phase": "x", "volumesInUse": listed})


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        (OWN_LABELS, None),
        ({**OWN_LABELS, "kubernetes.io/arch": "arm64"}, {"kubernetes.io/arch": "amd64"}),
        (None, {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}),
    ],
)
def test_labels_that_name_another_machine(labels: Any, wrong: Any) -> None:
    patch = build.machine_labels({"metadata": {"labels": labels}}, "amd64")
    assert patch == (None if wrong is None else {"metadata": {"labels": wrong}})


def test_handlers_with_a_feature() -> None:
    handlers: Any = [
        {"features": {"userNamespaces": True}},
        {"name": "runc", "features": {"userNamespaces": True, "recursiveReadOnlyMounts": False}},
        {"name": "old"},
    ]
    info = build.RuntimeInfo(handlers=handlers)
    assert info.handlers_with("userNamespaces") == {"", "runc"}
    assert info.handlers_with("recursiveReadOnlyMounts") == set()


@pytest.mark.parametrize(
    ("override", "hostname", "name"), [("", "Host-1\n", "host-1"), (" Node-A ", "host-1", "node-a")]
)
def test_the_name_of_a_node(override: str, hostname: str, name: str) -> None:
    assert node_name(NodeFlags(hostname_override=override), hostname) == name


def test_images_are_the_largest_with_few_names() -> None:
    images = [build.ImageSummary([f"{i}.{n}" for n in range(9)], i) for i in range(5)]
    reported = build.node_images(images, 2)
    assert [image["sizeBytes"] for image in reported] == [4, 3]
    assert len(reported[0]["names"]) == 5
    assert len(build.node_images(images, -1)) == 5
    assert build.node_images(images, 0) == []


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        ([], [{"type": "Ready", "status": "True"}], ["NodeReady"]),
        ([{"type": "Ready", "status": "True"}], [{"type": "Ready", "status": "True"}], []),
        (
            [{"type": "Ready", "status": "True"}],
            [{"type": "Ready", "status": "False"}],
            ["NodeNotReady"],
        ),
        ([], [{"type": "Ready", "status": "False"}], []),
        (
            [{"type": "Ready", "status": "Unknown"}],
            [{"type": "Ready", "status": "False"}],
            ["NodeNotReady"],
        ),
        ([], [{"type": "DiskPressure", "status": "True"}], ["NodeHasDiskPressure"]),
        ([], [{"type": "DiskPressure", "status": "False"}], ["NodeHasNoDiskPressure"]),
    ],
)
def test_events(old: Any, new: Any, reasons: list[str]) -> None:
    assert condition_events({"conditions": old}, {"conditions": new}) == reasons


def test_this_machine_can_be_read(tmp_path: Any) -> None:
    facts = read_machine_facts(tmp_path / "not" / "there")
    assert facts.cpu_count >= 1
    assert facts.memory_bytes > 0
    assert facts.root_storage_bytes > 0
    assert facts.kernel_version and facts.architecture


@pytest.mark.parametrize(
    ("supplied", "reported", "expected", "note"),
    [
        ([], [], ["Hostname"], None),
        (["192.0.2.1"], [], ["InternalIP 192.0.2.1", "Hostname"], "192.0.2.1"),
        (["0.0.0.0"], [], ["InternalIP 198.51.100.1", "Hostname"], None),
        (["::", "192.0.2.1"], [], ["InternalIP ::", "InternalIP 192.0.2.1", "Hostname"], None),
        (["192.0.2.1", "2001:db8::1"], ["ExternalIP 203.0.113.1"], ["ExternalIP 203.0.113.1"],
         "192.0.2.1,2001:db8::1"),
    ],
)  # fmt: skip
def test_addresses_with_a_clouds_controller(
    supplied: list[str], reported: list[str], expected: list[str], note: str | None
) -> None:
    found = supplied if supplied and supplied[0] != "0.0.0.0" else ["198.51.100.1"]
    chosen = options(node_ips=supplied, external_cloud_provider=True)
    before: Any = [dict(zip(("type", "address"), each.split(), strict=True)) for each in reported]
    now: Any = build.reported_addresses(chosen, found, "n", before)
    names = [" ".join(each.values()) for each in now]
    assert names == [each if " " in each else f"{each} n" for each in expected]
    node: Any = build.new_node(chosen, "n", "amd64", {})
    assert node["metadata"]["annotations"].get(build.PROVIDED_IPS) == note


def test_annotations_that_no_longer_hold_are_taken_away() -> None:
    existing: Any = {
        "metadata": {
            "name": "n",
            "annotations": {build.CONTROLLER_ATTACHES: "true", build.PROVIDED_IPS: "192.0.2.1"},
        }
    }
    desired = build.new_node(options(controller_attach_detach=False), "n", "amd64", {})
    patch: Any = build.metadata_patch(existing, desired)
    assert patch["metadata"]["annotations"] == {
        build.CONTROLLER_ATTACHES: None,
        build.PROVIDED_IPS: None,
    }
