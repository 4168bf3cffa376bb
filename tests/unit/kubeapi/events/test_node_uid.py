"""Events about the node carry the uid of the Node object once it is known."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import EventReason, Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, EventType, NodeUidRecorder, node_reference


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
