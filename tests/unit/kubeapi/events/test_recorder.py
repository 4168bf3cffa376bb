"""Object references in events."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.kubeapi.events.recorder import node_reference, pod_reference
from kubeletpy.pods.pod import Pod

BARE = {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}


@pytest.mark.parametrize(
    ("metadata", "field_path", "reference"),
    [
        ({}, "", BARE),
        ({"resourceVersion": "7"}, "", {**BARE, "resourceVersion": "7"}),
        ({}, "spec.containers{c}", {**BARE, "fieldPath": "spec.containers{c}"}),
    ],
)
def test_a_pod(metadata: Any, field_path: str, reference: Any) -> None:
    own: Any = {"name": "p", "namespace": "n", "uid": "u", **metadata}
    pod = Pod({"metadata": own, "spec": {"containers": [{"name": "c"}]}})
    assert pod_reference(pod, field_path) == reference


@pytest.mark.parametrize(("uid", "reported"), [("", "m"), ("u", "u")])
def test_a_node_has_its_name_as_uid_until_it_has_one(uid: str, reported: str) -> None:
    desired = {"apiVersion": "v1", "kind": "Node", "name": "m", "uid": reported}
    assert node_reference("m", uid) == desired
