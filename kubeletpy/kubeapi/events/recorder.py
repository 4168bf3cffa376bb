"""How the agent's packages report what happened: Kubernetes Events about an object. Pure.

This is the interface; the writer to the API is :mod:`kubeletpy.kubeapi.events.writer`. Recording
never blocks and never fails: an event that cannot be kept is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.events.reasons import EventReason
from kubeletpy.pods.pod import Pod

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"
EventType = Literal["Normal", "Warning"]


class EventRecorder(Protocol):
    """Takes events; see docs/reference/events.csv for the kubelet's reasons and wording."""

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record one event about an object; annotations are data for programs.

        ``message`` must not contain secrets.
        """


def pod_reference(pod: Pod, field_path: str = "") -> api.ObjectReference:
    """Reference to a pod, or with ``field_path`` to one of its containers."""
    reference: api.ObjectReference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }
    if version := pod.metadata.get("resourceVersion"):
        reference["resourceVersion"] = version
    if field_path:
        reference["fieldPath"] = field_path
    return reference


def node_reference(node_name: str, uid: str = "") -> api.ObjectReference:
    """Reference to the node; like the kubelet, with its name as uid until the uid is known."""
    return {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": uid or node_name}


# Events about the node get the uid of the Node object, once it is registered. They never wait for
# the API. Source: docs/reference/behaviour.md, u: ka54.


class NodeUidRecorder(Component):
    """An :class:`EventRecorder` that completes node references.

    The uid is resolved once: a Node that is deleted and made again while the agent runs keeps the
    first uid in its events.
    """

    to: EventRecorder
    node_name: str
    lookup: Callable[[], str]
    """Returns the uid of the Node object, which is empty before registration."""

    def __post_init__(self) -> None:
        self._uid = ""

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
        if involved.get("kind") == "Node" and involved.get("name") == self.node_name:
            self._uid = self._uid or self.lookup()
            if self._uid:
                involved = {**involved, "uid": self._uid}
        self.to.event(involved, event_type, reason, message, annotations=annotations)
