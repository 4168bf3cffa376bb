"""Object references in events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import EventReason, Reason
from kubeletpy.kubeapi.events.recorder import (
    NORMAL,
    EventType,
    NodeUidRecorder,
    node_reference,
    pod_reference,
)
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


# Events about the node carry the uid of the Node object once it is known.


class _Seen:
    def __init__(self) -> None:
        self.uids: list[str] = []

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.uids.append(involved["uid"])


def test_a_uid_is_resolved_once_and_only_for_this_node() -> None:
    seen, known = _Seen(), [""]
    recorder = NodeUidRecorder(seen, "n1", lambda: known[0])
    pod: api.ObjectReference = {"kind": "Pod", "name": "n1", "uid": "p"}
    for uid in ("", "u1", "u2"):
        known[0] = uid
        for involved in (node_reference("n1"), node_reference("n2"), pod):
            recorder.event(involved, NORMAL, Reason.STARTING, "x")
    assert seen.uids == ["n1", "n2", "p", "u1", "n2", "p", "u1", "n2", "p"]
