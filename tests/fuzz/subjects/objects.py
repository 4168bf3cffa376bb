"""Objects of the API: manifests, bodies, patches, selectors, and the values of their fields."""

from __future__ import annotations

import json
from typing import Any, cast

from kubeletpy.base.api import quantity, times
from kubeletpy.base.api import types as api
from kubeletpy.pods.environment import ExpansionTooLong, expand
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.model import parse_ids
from kubeletpy.syncloop.sources.manifest import ManifestError, Origin, decode_manifest
from kubeletpy.volumes.containers.environment import parse_env_file
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http.bodies import read, read_yaml
from kubeletpy_up.patching.apply import json_patch, merge_patch, server_side_apply, strategic_merge
from kubeletpy_up.resources import find_kind
from kubeletpy_up.schema import definitions, formats
from kubeletpy_up.schema.decode import decode, decode_kind, parse_json
from kubeletpy_up.storage.selectors import parse_fields, parse_labels
from kubeletpy_up.validation.objects import validate_create
from tests.fuzz.target import JSON_WORDS, YAML_WORDS, target, text

POD = b"""apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, annotations: {a: b}}
spec:
  containers:
  - name: main
    image: busybox
    resources: {limits: {cpu: 1m}}
    ports: [{containerPort: 80}]
"""
LIST = b'{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{}}]}'
FIELDS = (b"metadata", b"spec", b"containers", b"name", b"image", b"hostNetwork", b"nodeName")


@target(ManifestError, seeds=(POD, LIST), parts=(*YAML_WORDS, *JSON_WORDS, *FIELDS))
def manifest(data: bytes) -> None:
    """An accepted manifest can be written as JSON for the API."""
    origin = Origin("node", "/etc/kubernetes/manifests/a.yaml", data[-1:] != b"\n")
    for pod in decode_manifest(data, origin):
        json.dumps(pod)
        assert pod["metadata"]["name"]


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


PATCHED = json.dumps(
    {
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x"]},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}], "ports": []}],
            "tolerations": [{"key": "k"}],
        },
    }
).encode()
OPERATIONS = (
    b'[{"op":"add","path":"/metadata/labels/x~1y","value":1},{"op":"test","path":"/a","value":0}]',
    b'[{"op":"copy","from":"/spec","path":"/spec/a"},{"op":"move","from":"/a","path":"/b/-"}]',
    b'[{"op":"remove","path":"/spec/containers/0"},{"op":"replace","path":"","value":{}}]',
)
MERGES = (
    b'{"metadata":{"labels":null,"$deleteFromPrimitiveList/finalizers":["x"]}}',
    b'{"spec":{"containers":[{"name":"c","$patch":"delete"},{"$patch":"replace"}]}}',
    b'{"spec":{"$setElementOrder/containers":[{"name":"c"}],"$retainKeys":["a"]}}',
)
WORDS = (
    *JSON_WORDS,
    *(b"$patch", b"$retainKeys", b"$setElementOrder/", b"$deleteFromPrimitiveList/"),
    *(b'"op":', b'"path":"/', b'"from":"/', b'"value":', b'"name":', b"~0", b"~1", b"/-", b"spec"),
)
_NAME = definitions.definition_name("", "v1", "Pod")


def _two(data: bytes) -> tuple[Any, Any]:
    """The object is small enough for any server, and an object."""
    first, _, second = data.partition(b"\0")
    found = parse_json(first)
    return (found if isinstance(found, dict) else {}), parse_json(second)


@target(ApiError, seeds=tuple(PATCHED + b"\0" + each for each in OPERATIONS), parts=WORDS)
def patch_json(data: bytes) -> None:
    """RFC 6902 and 7386; the object is left as it was."""
    document, patch = _two(data)
    before = json.dumps(document)
    try:
        json.dumps(merge_patch(document, patch))
        json.dumps(json_patch(document, patch))
    finally:
        assert json.dumps(document) == before


@target(ApiError, seeds=tuple(PATCHED + b"\0" + each for each in MERGES), parts=WORDS)
def patch_strategic(data: bytes) -> None:
    """A strategic merge patch of any object; it is left as it was."""
    document, patch = _two(data)
    if not isinstance(patch, dict):
        return
    before = json.dumps(document)
    try:
        json.dumps(strategic_merge(_NAME, document, patch))
    finally:
        assert json.dumps(document) == before


@target(ApiError, seeds=(PATCHED + b"\0" + PATCHED, PATCHED + b"\0" + MERGES[0]), parts=WORDS)
def patch_apply(data: bytes) -> None:
    """Server-side apply of what a client sent on what is stored."""
    document, patch = _two(data)
    live, _ = decode_kind("", "v1", "Pod", document)
    applied, _ = decode_kind("", "v1", "Pod", patch, whole=False)
    json.dumps(server_side_apply(_NAME, live, applied, "fuzz", bool(len(data) % 2), 1.0))


LABELS = {"a": "b", "x.io/y": "5"}


@target(
    ApiError,
    seeds=(b"a=b,c in (d,e),!f,g notin (),h>5", b"a==b,x.io/y,c!=d"),
    parts=(b" in (", b" notin (", b",", b"!=", b"==", b")", b" " * 16),
)
def label_selector(data: bytes) -> None:
    """A label selector, and whether labels match it."""
    for requirement in parse_labels(text(data)):
        requirement.matches(LABELS)


@target(
    ApiError,
    seeds=(b"spec.nodeName=a,status.phase!=Running", b"metadata.name==a\\,b"),
    parts=(b"spec.nodeName", b"metadata.name", b"\\,", b"\\=", b"=", b"!="),
)
def field_selector(data: bytes) -> None:
    """A field selector, and whether a pod matches it."""
    for term in parse_fields("pods", text(data)):
        term.matches({"metadata": {"name": "a"}, "spec": {}, "status": {}})


@target(
    ValueError,
    seeds=(b"1", b"100m", b"1.5Gi", b"1e3", b"-12E", b"0.000000001"),
    parts=(b"Ki", b"Mi", b"Gi", b"Ei", b"n", b"u", b"m", b"e", b"E", b"e-9", b"E+18", b"."),
)
def quantity_both(data: bytes) -> None:
    """A quantity that the embedded API accepts has the agent's value, and one spelling."""
    supplied = text(data)
    try:
        canonical = formats.canonical(supplied)
    except ValueError:
        quantity.value(supplied)
        return
    assert formats.canonical(canonical) == canonical
    quantity.value(canonical), quantity.milli_value(canonical)


@target(ValueError, seeds=(b"2024-01-02T03:04:05Z", b"2024-01-02T03:04:05.678+01:00"))
def time_text(data: bytes) -> None:
    """A time of the API."""
    times.format_time(times.parse_time(text(data)))


@target(ValueError, seeds=(b"1h2m3s", b"1.5ms", b"-4us"), parts=(b"ns", b"us", b"ms", b"h"))
def duration(data: bytes) -> None:
    """A duration as Go writes it; written again it is the same."""
    seconds = times.parse_duration(text(data))
    times.parse_duration(times.format_duration(seconds))


@target(ValueError, seeds=(b"0-3,8", b"1", b""))
def id_list(data: bytes) -> None:
    """Numbers of CPUs or memory nodes."""
    parse_ids(text(data))


@target(seeds=(b"A='b'\n# c\nD='e\nf'\n",), parts=(b"='", b"'\n", b"\r\n", b"#", b"\n", b"export "))
def env_file(data: bytes) -> None:
    """An env file, as a container wrote it."""
    found = parse_env_file(text(data))
    assert all("=" not in name and "\n" not in name for name in found.values)


@target(ExpansionTooLong, seeds=(b"$(A) $$(A) $(B", b"$(A)$(A)"), parts=(b"$(", b"$$", b")"))
def expansion(data: bytes) -> None:
    """References to variables in commands and values."""
    expand(text(data), lambda name: name * 8 if len(name) % 2 else None)
