"""Downward API values (docs/reference/behaviour.md, h2)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.environment import (
    DownwardError,
    NodeFacts,
    NoNodeAddress,
    field_value,
    resource_value,
)
from tests.unit.runtime_manager.pods_and_records import container, make_pod

POD = make_pod(
    container(
        "app",
        resources={
            "limits": {"cpu": "1500m", "memory": "100M", "hugepages-2Mi": "4Mi"},
            "requests": {"cpu": "250m", "memory": "64Mi"},
        },
    ),
    "bare",
    container("vast", resources={"limits": {"cpu": "2000"}}),
    metadata={"labels": {"app": "shop"}, "annotations": {"a/b": "note"}},
    nodeName="node-1",
    serviceAccountName="robot",
)
FACTS = NodeFacts(
    pod_ips=("10.0.0.2", "fd00::2"),
    host_ips=("192.0.2.1", "2001:db8::1"),
    allocatable={
        "cpu": "4",
        "memory": "8Gi",
        "ephemeral-storage": "10Gi",
        "hugepages-2Mi": "8Mi",
    },
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "prod"),
        ("metadata.uid", "uid-1"),
        ("metadata.labels['app']", "shop"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a/b']", "note"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1,2001:db8::1"),
        ("status.podIP", "10.0.0.2"),
        ("status.podIPs", "10.0.0.2,fd00::2"),
    ],
)
def test_fields(path: str, expected: str) -> None:
    assert field_value({"fieldPath": path}, POD, FACTS) == expected


@pytest.mark.parametrize("path", ["status.hostIP", "status.hostIPs"])
def test_addresses_of_a_node_that_has_none(path: str) -> None:
    facts = NodeFacts(pod_ips=("10.0.0.2",))
    with pytest.raises(NoNodeAddress, match=rf"^{path} is not known: .* cloud controller"):
        field_value({"fieldPath": path}, POD, facts)


@pytest.mark.parametrize("path", ["status.podIP", "status.podIPs"])
def test_addresses_of_a_pod_that_has_none(path: str) -> None:
    on_host = make_pod("app", hostNetwork=True)
    assert field_value({"fieldPath": path}, POD, NodeFacts()) == ""
    with pytest.raises(NoNodeAddress, match=f"^{path} is not known"):
        field_value({"fieldPath": path}, on_host, NodeFacts())
    annotations = {"kubernetes.io/config.source": "file"}
    static = make_pod("app", hostNetwork=True, metadata={"annotations": annotations})
    assert static.is_static
    assert field_value({"fieldPath": path}, static, NodeFacts()) == ""


@pytest.mark.parametrize(
    "path",
    [
        "spec.containers",
        "spec['x']",
        "metadata.labels",
        "metadata.labels']",
        "metadata.annotations']",
        "",
    ],
)
def test_other_fields_are_refused(path: str) -> None:
    with pytest.raises(DownwardError, match="fieldPath"):
        field_value({"fieldPath": path}, POD, FACTS)


def test_addresses_that_are_not_known_yet_are_empty() -> None:
    assert field_value({"fieldPath": "status.podIP"}, POD, NodeFacts()) == ""


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu", "divisor": "0"}, "2"),
        ({"resource": "requests.cpu", "divisor": "100m"}, "3"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "96"),
        ({"resource": "limits.memory", "divisor": "0"}, "100000000"),
        # cpu and its divisor count in integral thousandths
        ({"resource": "requests.cpu", "divisor": "1500u"}, "125"),
        ({"resource": "requests.memory"}, "67108864"),
        ({"resource": "requests.memory", "divisor": "1500u"}, "44739242667"),
        ({"resource": "limits.hugepages-2Mi", "divisor": "1Mi"}, "4"),
        ({"resource": "requests.ephemeral-storage"}, "0"),
        ({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}, "10"),
        ({"resource": "limits.cpu", "containerName": "bare"}, "4"),
        ({"resource": "limits.cpu", "containerName": "vast", "divisor": "0"}, "2000"),
        ({"resource": "limits.memory", "containerName": "bare", "divisor": "1Gi"}, "8"),
        ({"resource": "limits.hugepages-2Mi", "containerName": "bare"}, "0"),
    ],
)
def test_resources(selector: Any, expected: str) -> None:
    assert resource_value(selector, POD, POD.containers[0], FACTS) == expected


def test_a_pod_level_limit_stands_before_the_node() -> None:
    pod = make_pod(resources={"limits": {"cpu": "2"}})
    assert resource_value({"resource": "limits.cpu"}, pod, pod.containers[0], FACTS) == "2"
    memory: Any = {"resource": "limits.memory", "divisor": "1Gi"}
    assert resource_value(memory, pod, pod.containers[0], FACTS) == "8"
    no_compute = make_pod(resources={"limits": {"ephemeral-storage": "1Gi"}})
    disk: Any = {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}
    assert resource_value(disk, no_compute, no_compute.containers[0], FACTS) == "10"


@pytest.mark.parametrize(
    "selector",
    [
        {"resource": "limits.example.com/gpu"},
        {"resource": "cpu"},
        {"resource": "uses.cpu"},
        {"resource": "limits.cpu", "containerName": "nobody"},
        {"resource": "limits.cpu", "divisor": "many"},
    ],
)
def test_bad_references(selector: Any) -> None:
    with pytest.raises(DownwardError):
        resource_value(selector, POD, POD.containers[0], FACTS)


@pytest.mark.parametrize(
    ("limit_of_pod", "allocatable", "expected"),
    [
        ("2", {"cpu": "4"}, "2"),
        ("0", {"cpu": "4"}, "4"),
        (None, {"cpu": "4"}, "4"),
        ("2", {}, "0"),
        ("2", None, "0"),
    ],
)
def test_the_value_shown_for_an_absent_limit(
    limit_of_pod: str | None, allocatable: dict[str, str] | None, expected: str
) -> None:
    limits = {} if limit_of_pod is None else {"cpu": limit_of_pod}
    pod = make_pod("bare", resources={"limits": limits})
    facts = NodeFacts(allocatable=allocatable)
    assert resource_value({"resource": "limits.cpu"}, pod, pod.containers[0], facts) == expected
