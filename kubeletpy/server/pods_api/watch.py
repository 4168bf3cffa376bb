"""The next event for a client that watches pods, given the last one sent. Pure, and so apart.

Source: docs/reference/behaviour.md, t5.

A watcher receives the newest state of a pod, not of each: however slowly it reads, it waits for
at most one event a pod, and none is lost. An object that differs in nothing but ``resourceVersion``
and ``managedFields`` counts as unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod


class Event(Enum):
    """Kinds of events, by the names of EventType. Source: docs/reference/pods-v1alpha1.json."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


_NOT_READY: api.PodCondition = {
    "type": "Ready",
    "status": "False",
    "reason": "ContainersNotReady",
    "message": "Kubelet is initializing pod containers",
}


class View(Struct, frozen=True):
    """A pod and the status that belongs to it."""

    pod: Pod
    status: api.PodStatus

    @property
    def object(self) -> Mapping[str, Any]:
        """Returns the API object with that status."""
        return {**self.pod.object, "status": self.status}


def next_event(before: View | None, now: View | None) -> Event | None:
    """Return the event for a watcher that last received ``before``, or None if there is none."""
    if now is None:
        return None if before is None else Event.DELETED
    if before is None:
        return Event.ADDED
    return None if _same(before, now) else Event.MODIFIED


def unconfirmed(status: api.PodStatus) -> api.PodStatus:
    """Return the status, from the API's object, of a pod that the agent has not composed one for.

    It is Pending unless the object has a phase, and not Ready whatever an earlier agent reported.
    """
    known: api.PodStatus = {**status, "phase": status.get("phase") or "Pending"}
    if "conditions" in known:
        known["conditions"] = [
            {**each, **_NOT_READY} if (each["type"], each["status"]) == ("Ready", "True") else each
            for each in known["conditions"]
        ]
    return known


def last_message(pod: Pod) -> Mapping[str, Any]:
    """Return the content of the last event of a pod: its name, namespace and uid."""
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}}


def _same(before: View, now: View) -> bool:
    if before.status != now.status:
        return False
    if before.pod.object is now.pod.object:
        return True
    return before.pod.spec == now.pod.spec and _metadata(before.pod) == _metadata(now.pod)


def _metadata(pod: Pod) -> dict[str, Any]:
    left_out = ("resourceVersion", "managedFields")
    return {key: value for key, value in pod.metadata.items() if key not in left_out}
