"""Objects that clients send to the embedded API."""

from __future__ import annotations

import json
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http.bodies import read, read_yaml
from kubeletpy_up.resources import find_kind
from kubeletpy_up.schema.decode import decode, parse_json
from kubeletpy_up.validation.objects import validate_create
from tests.fuzz.subjects.manifests import FIELDS, POD
from tests.fuzz.target import JSON_WORDS, YAML_WORDS, target

_RESOURCE = find_kind("v1", "Pod")
assert _RESOURCE is not None
WHOLE = json.dumps(
    {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
                    "ports": [{"containerPort": 80, "hostIP": "1.2.3.4"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}],
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec"}}}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                }
            ],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "securityContext": {"sysctls": [{"name": "a.b", "value": "c"}], "runAsUser": 1},
            "affinity": {"nodeAffinity": {}},
        },
    }
).encode()


@target(ApiError, seeds=(POD, b"a: &b [c]\nd: *b\n", b"{}"), parts=YAML_WORDS)
def body_yaml(data: bytes) -> None:
    """A body of YAML becomes values that JSON can represent."""
    json.dumps(read_yaml(data))


@target(ApiError, seeds=(b"k8s\0\n\t\n\2v1\22\3Pod\22\0",), parts=(b"k8s\0", b"v1", b"Pod"))
def body_protobuf(data: bytes) -> None:
    """A body of Kubernetes' protobuf."""
    json.dumps(read(data, "application/vnd.kubernetes.protobuf"))


@target(ApiError, seeds=(WHOLE,), parts=(*JSON_WORDS, *FIELDS))
def object_pod(data: bytes) -> None:
    """A pod is refused, or it is validated with causes; what is taken the agent can read."""
    assert _RESOURCE is not None
    found, _ = decode(_RESOURCE, parse_json(data))
    json.dumps(found)
    causes = validate_create(_RESOURCE, found)
    if not causes:
        assert Pod(cast(api.Pod, found)).key
