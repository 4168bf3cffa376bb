"""Defaults: the table of the API, row by row."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy_up import resources
from kubeletpy_up.defaults import pods as pod_defaults
from kubeletpy_up.kinds import pods


def resource(name: str) -> resources.ResourceInfo:
    found = resources.find(name)
    assert found is not None
    return found


def spec_of(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    supplied = {"metadata": {"name": "a", **metadata}, "spec": spec}
    before = copy.deepcopy(supplied)
    filled = pod_defaults.apply_defaults(resource("pods"), supplied)
    assert supplied == before, "the input was changed"
    assert pod_defaults.apply_defaults(resource("pods"), filled) == filled, "not idempotent"
    found: dict[str, Any] = filled["spec"]
    return found


def container_of(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec_of({"containers": [container], **spec})["containers"][0]
    return found


def test_given_values_are_kept() -> None:
    supplied = {"restartPolicy": "Never", "enableServiceLinks": False, "serviceAccount": "x"}
    supplied["terminationGracePeriodSeconds"] = 0
    spec = spec_of({"containers": [], **supplied})
    assert {key: spec[key] for key in supplied} == supplied
    assert spec["serviceAccountName"] == "x"


def test_mirror_pods_have_no_service_account() -> None:
    spec = spec_of({"containers": []}, annotations={"kubernetes.io/config.mirror": "x"})
    assert "serviceAccountName" not in spec


def test_a_given_toleration_is_not_doubled() -> None:
    supplied = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    keys = [t["key"] for t in spec_of({"containers": [], "tolerations": supplied})["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("localhost:5000/busybox", "Always"),
        ("localhost:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_pull_policy(image: str, policy: str) -> None:
    assert container_of({"image": image})["imagePullPolicy"] == policy
    volumes = [{"name": "v", "image": {"reference": image}}]
    volume = spec_of({"containers": [], "volumes": volumes})["volumes"][0]
    assert volume["image"]["pullPolicy"] == policy


def test_requests_from_limits() -> None:
    supplied = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    found = container_of({"resources": supplied})["resources"]
    assert found["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_probes_and_hooks() -> None:
    numbers = {"periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1}
    numbers["failureThreshold"] = 3
    supplied = {"livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 1}}}
    found = container_of(supplied)
    assert found["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        **numbers,
    }
    assert found["readinessProbe"] == {"grpc": {"port": 1, "service": ""}, **numbers}
    hook = container_of({"lifecycle": {"preStop": {"httpGet": {"port": 80}}}})["lifecycle"]
    assert hook == {"preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}}


def test_env_field_reference() -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    found = container_of({"env": [variable]})["env"][0]["valueFrom"]["fieldRef"]
    assert found == {"fieldPath": "metadata.name", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("supplied", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"configMap": {"name": "x"}}, {"configMap": {"name": "x", "defaultMode": 420}}),
        ({"secret": {"secretName": "x"}}, {"secret": {"secretName": "x", "defaultMode": 420}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
        ),
    ],
)
def test_volumes(supplied: dict[str, Any], filled: dict[str, Any]) -> None:
    spec = spec_of({"containers": [], "volumes": [{"name": "v", **supplied}]})
    assert spec["volumes"] == [{"name": "v", **filled}]


def test_other_kinds() -> None:
    def filled(name: str, obj: dict[str, Any]) -> dict[str, Any]:
        return pod_defaults.apply_defaults(resource(name), obj)

    namespace = filled("namespaces", {"metadata": {"name": "n"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert namespace["status"] == {"phase": "Active"}
    secret = filled("secrets", {"stringData": {"a": "b"}, "data": {"c": "YQ=="}})
    assert secret == {"type": "Opaque", "data": {"a": "Yg==", "c": "YQ=="}}
    service = filled("services", {"spec": {"ports": [{"port": 80}]}})["spec"]
    assert service == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    node = filled("nodes", {"status": {"capacity": {"cpu": "2"}}})
    assert node["status"]["allocatable"] == {"cpu": "2"}


def test_service_account_admission() -> None:
    base = {"metadata": {}, "spec": {"containers": [{"name": "c"}], "initContainers": [{}]}}
    account = {"imagePullSecrets": [{"name": "s"}]}
    spec = pods.with_service_account(base, account, "abcde")["spec"]
    mount = {
        "name": "kube-api-access-abcde",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert spec["initContainers"][0]["volumeMounts"] == [mount]
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    (volume,) = spec["volumes"]
    kinds = [next(iter(source)) for source in volume["projected"]["sources"]]
    assert kinds == ["serviceAccountToken", "configMap", "downwardAPI"]
    off = {"metadata": {}, "spec": {**base["spec"], "automountServiceAccountToken": False}}
    assert "volumes" not in pods.with_service_account(off, {}, "abcde")["spec"]
    account_off = {"automountServiceAccountToken": False}
    assert "volumes" not in pods.with_service_account(base, account_off, "x")["spec"]


@pytest.mark.parametrize(
    ("resources_of", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        (
            [{"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1000m", "memory": "1"}}],
            "Guaranteed",
        ),
        (
            [{"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}, {}],
            "Burstable",
        ),
    ],
)
def test_qos_class(resources_of: list[dict[str, Any]], qos: str) -> None:
    assert pods.qos_class({"containers": [{"resources": r} for r in resources_of]}) == qos
