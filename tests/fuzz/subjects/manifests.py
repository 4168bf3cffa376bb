"""Manifests of static pods, from files and from a URL."""

from __future__ import annotations

import json

from kubeletpy.syncloop.sources.manifest import ManifestError, Origin, decode_manifest
from tests.fuzz.target import JSON_WORDS, YAML_WORDS, target

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
