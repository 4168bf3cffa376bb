"""Pods encoded in protobuf are decoded equally by another reader of the same field numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.server.pods_api.server import marshal
from kubeletpy_up.schema import definitions

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"a": "b", "c": ""},
        "managedFields": [{"manager": "m", "fieldsV1": {"f:metadata": {}}}],
        "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "x", "controller": True}],
    },
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "hostNetwork": True,
        "securityContext": {"runAsUser": 0, "supplementalGroups": [1, 2]},
        "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        ],
        "containers": [
            {
                "name": "c",
                "command": ["sleep", "ü"],
                "resources": {
                    "limits": {"cpu": "100m", "nvidia.com/gpu": "1"},
                    "requests": {"memory": "1Gi"},
                    "claims": [{"name": "claim", "request": "r"}],
                },
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
                "readinessProbe": {"tcpSocket": {"port": 8080}, "initialDelaySeconds": -1},
                "securityContext": {"privileged": False},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-02T03:04:06Z",
        "containerStatuses": [
            {
                "name": "c",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-01-02T03:04:07Z"}},
            }
        ],
        "observedGeneration": 7,
    },
}


def read(raw: bytes) -> Any:
    """The embedded API's reader, in its envelope."""
    about = b"\x0a\x02v1\x12\x03Pod"
    envelope = b"\x0a" + bytes([len(about)]) + about
    size, length = len(raw), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return definitions.decode(b"k8s\0" + envelope + b"\x12" + length + bytes([size]) + raw)


def test_a_reader_finds_what_was_written() -> None:
    assert read(marshal(POD)) == {"kind": "Pod", "apiVersion": "v1", **POD}


def test_unknown_fields_and_nulls_are_left_out() -> None:
    found = read(marshal({"metadata": {"name": "p", "labels": None}, "spec": {"newField": {}}}))
    assert found["metadata"] == {"name": "p"}


def test_numbers_for_quantities() -> None:
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 2}}}]}}
    (container,) = read(marshal(pod))["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2"}


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        ({"spec": []}, "spec: PodSpec|core/PodSpec is not an object"),
        ({"spec": {"hostname": 5}}, "PodSpec.hostname: int instead of string"),
        ({"spec": {"priority": "high"}}, "PodSpec.priority: str instead of int"),
        ({"spec": {"priority": 2**64}}, "PodSpec.priority: ValueError"),
        ({"spec": {"containers": [5]}}, "containers: core/Container is not an object"),
        ({"spec": {"containers": 5}}, "containers: TypeError"),
        ({"spec": {"nodeSelector": ["a"]}}, "nodeSelector: AttributeError"),
        ({"spec": {"hostname": "\ud800"}}, "PodSpec.hostname: Unicode"),
        ({"metadata": {"creationTimestamp": "soon"}}, "creationTimestamp"),
        ({"metadata": {"creationTimestamp": 5}}, "creationTimestamp"),
    ],
)
def test_a_value_of_another_type_is_named(pod: Any, named: str) -> None:
    with pytest.raises(Unfit, match=named):
        marshal(pod)
