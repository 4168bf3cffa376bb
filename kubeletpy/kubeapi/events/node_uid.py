"""Gives events about the node the uid of the Node object, once the node is registered. Pure.

Source: docs/reference/behaviour.md, u: ka54. Must never wait for the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import EventReason
from kubeletpy.kubeapi.events.recorder import AnnotatingRecorder, EventType


class NodeUidRecorder:
    """An :class:`~kubeletpy.kubeapi.events.recorder.AnnotatingRecorder` that completes node references.

    The uid is resolved once: a Node that is deleted and made again while the agent runs keeps the
    first uid in its events.
    """

    def __init__(self, to: AnnotatingRecorder, node_name: str) -> None:
        self._to = to
        self._name = node_name
        self._uid = ""
        self.lookup: Callable[[], str] = str
        """Returns the uid of the Node object; empty before registration."""

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event; a node reference that has only the name gets the uid."""
        if involved.get("kind") == "Node" and involved.get("name") == self._name:
            self._uid = self._uid or self.lookup()
            if self._uid:
                involved = {**involved, "uid": self._uid}
        self._to.event(involved, event_type, reason, message, annotations=annotations)
