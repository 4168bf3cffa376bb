"""The defaults that an API server sets on pods, set here on static pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods import defaults

CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
    "resources": {},
}
SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "securityContext": {},
}
PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
GIVEN = {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "1Gi"}}
FILLED = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({}, {}),
        ({"restartPolicy": ""}, {}),
        ({"restartPolicy": "Never"}, {"restartPolicy": "Never"}),
        ({"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": 0}),
        ({"enableServiceLinks": False}, {"enableServiceLinks": False}),
        ({"containers": [{"name": "a"}]}, {"containers": [{"name": "a", **CONTAINER}]}),
        ({"initContainers": [{"name": "a"}]}, {"initContainers": [{"name": "a", **CONTAINER}]}),
        # an ephemeral container may not have requests
        (
            {"ephemeralContainers": [{"name": "a", "resources": GIVEN}]},
            {"ephemeralContainers": [{"name": "a", **CONTAINER, "resources": GIVEN}]},
        ),
        (
            {"containers": [{"name": "a", "resources": GIVEN}]},
            {"containers": [{"name": "a", **CONTAINER, "resources": FILLED}]},
        ),
        ({"volumes": [{"name": "v"}]}, {"volumes": [{"name": "v", "emptyDir": {}}]}),
        ({"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}),
    ],
)
def test_a_spec(spec: Any, more: Any) -> None:
    assert defaults.pod_spec(spec) == {**SPEC, **more}


@pytest.mark.parametrize(
    ("requested", "own", "total"),
    [
        ([], {}, "4"),
        ([{}], {}, "4"),
        (["1", "2"], {}, "3"),
        (["500m", "250m"], {}, "750m"),
        (["500m", "1500m"], {}, "2"),
        (["1"], {"cpu": "2"}, "2"),
    ],
)
def test_defaults_of_pod_level_requests(requested: Any, own: Any, total: str) -> None:
    containers = [{"resources": {"requests": {"cpu": a}} if a else {}} for a in requested]
    spec = {"containers": containers, "resources": {"limits": {"cpu": "4"}, "requests": own}}
    assert defaults.pod_spec(spec)["resources"]["requests"] == {"cpu": total}


@pytest.mark.parametrize(("first", "total"), [("1Gi", "1536Mi"), ("1073741824", "1610612736")])
def test_sums_are_spelled_as_the_first(first: str, total: str) -> None:
    containers = [{"resources": {"requests": {"memory": m}}} for m in (first, "512Mi")]
    spec = {"containers": containers, "resources": {"limits": {"memory": "4Gi"}}}
    assert defaults.pod_spec(spec)["resources"]["requests"] == {"memory": total}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("", "Always"),
        ("a:latest", "Always"),
        ("a:", "Always"),
        ("a:1", "IfNotPresent"),
        ("r:5000/a", "Always"),
        ("r:5000/b/a:1", "IfNotPresent"),
        ("r:5000/b/a:latest", "Always"),
        ("a@sha256:0", "IfNotPresent"),
        ("r:5000/a@sha256:0", "IfNotPresent"),
        ("a:latest@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy(image: str, policy: str) -> None:
    assert defaults.container({"image": image})["imagePullPolicy"] == policy
    of_volume = defaults.volume({"name": "v", "image": {"reference": image}})
    assert of_volume["image"]["pullPolicy"] == policy


FIELD = {"fieldRef": {"fieldPath": "x"}}
FIELD_V1 = {"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}
OF_RESOURCE = {"resourceFieldRef": {"resource": "r"}}
DIVIDED = {"resourceFieldRef": {"resource": "r", "divisor": "0"}}
HTTP = {"httpGet": {"port": 1}}
HTTP_FULL = {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}


@pytest.mark.parametrize(
    ("supplied", "filled"),
    [
        ({}, {}),
        ({"ports": []}, {"ports": []}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1, "protocol": "TCP"}]}),
        ({"env": [{"name": "e", "value": "v"}]}, {"env": [{"name": "e", "value": "v"}]}),
        ({"env": [{"valueFrom": FIELD}]}, {"env": [{"valueFrom": FIELD_V1}]}),
        ({"env": [{"valueFrom": OF_RESOURCE}]}, {"env": [{"valueFrom": DIVIDED}]}),
        (
            {"env": [{"valueFrom": {"secretKeyRef": {"key": "k"}}}]},
            {"env": [{"valueFrom": {"secretKeyRef": {"key": "k"}}}]},
        ),
        ({"livenessProbe": {}}, {"livenessProbe": PROBE}),
        (
            {"readinessProbe": {**HTTP, "periodSeconds": 0, "timeoutSeconds": 5}},
            {"readinessProbe": {**PROBE, **HTTP_FULL, "timeoutSeconds": 5}},
        ),
        (
            {"startupProbe": {"grpc": {"port": 1}, "failureThreshold": 9}},
            {"startupProbe": {**PROBE, "grpc": {"port": 1, "service": ""}, "failureThreshold": 9}},
        ),
        (
            {"startupProbe": {"grpc": {"port": 1, "service": "s"}}},
            {"startupProbe": {**PROBE, "grpc": {"port": 1, "service": "s"}}},
        ),
        (
            {"lifecycle": {"preStop": HTTP, "stopSignal": "SIGHUP"}},
            {"lifecycle": {"preStop": HTTP_FULL, "stopSignal": "SIGHUP"}},
        ),
        ({"lifecycle": {"postStart": None}}, {"lifecycle": {"postStart": None}}),
    ],
)
def test_a_container(supplied: Any, filled: Any) -> None:
    assert defaults.container(supplied) == {**CONTAINER, **filled}


@pytest.mark.parametrize(
    ("port", "host_network", "host_port"),
    [
        ({"containerPort": 1}, True, 1),
        ({"containerPort": 1}, False, None),
        ({"containerPort": 1, "hostPort": 2}, True, 2),
        ({"containerPort": 1, "hostPort": 2}, False, 2),
        ({"containerPort": 1, "hostPort": 0}, True, 1),
        ({}, True, None),
    ],
)
def test_ports_on_the_hosts_network(port: Any, host_network: bool, host_port: Any) -> None:
    spec = defaults.pod_spec({"hostNetwork": host_network, "containers": [{"ports": [port]}]})
    assert spec["containers"][0]["ports"][0].get("hostPort") == host_port


MODE = {"defaultMode": 420}


@pytest.mark.parametrize(
    ("supplied", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": None}, {"secret": None, "emptyDir": {}}),
        ({"nfs": {}}, {"nfs": {}}),
        ({"secret": {}}, {"secret": MODE}),
        ({"secret": {"defaultMode": 0}}, {"secret": {"defaultMode": 0}}),
        ({"configMap": {}}, {"configMap": MODE}),
        ({"downwardAPI": {}}, {"downwardAPI": MODE}),
        (
            {"downwardAPI": {"items": [FIELD, OF_RESOURCE]}},
            {"downwardAPI": {**MODE, "items": [FIELD_V1, DIVIDED]}},
        ),
        ({"projected": {}}, {"projected": MODE}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {}}]}},
            {
                "projected": {
                    **MODE,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3600}},
                        {"secret": {}},
                    ],
                }
            },
        ),
        (
            {"projected": {"sources": [{"downwardAPI": {"items": [FIELD]}}]}},
            {"projected": {**MODE, "sources": [{"downwardAPI": {"items": [FIELD_V1]}}]}},
        ),
        ({"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}),
        (
            {"hostPath": {"path": "/", "type": "Directory"}},
            {"hostPath": {"path": "/", "type": "Directory"}},
        ),
        (
            {"image": {"reference": "a", "pullPolicy": "Never"}},
            {"image": {"reference": "a", "pullPolicy": "Never"}},
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"metadata": {}, "spec": {"a": 1}}}},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {},
                        "spec": {"a": 1, "volumeMode": "Filesystem"},
                    }
                }
            },
        ),
    ],
)
def test_a_volume(supplied: Any, filled: Any) -> None:
    assert defaults.volume({"name": "v", **supplied}) == {"name": "v", **filled}
