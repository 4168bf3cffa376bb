"""Events: one stored object, seen through core/v1 and through events.k8s.io/v1.

Pure. Objects are stored in the core/v1 form.
"""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import Cause

_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_CORE = {new: core for core, new in _TO_NEW.items()}


def to_new(event: JSON) -> JSON:
    """A core/v1 event as events.k8s.io/v1."""
    renamed = {
        _TO_NEW.get(key, key): value
        for key, value in event.items()
        if value or key not in ("reportingComponent", "reportingInstance")
    }
    return {**renamed, "kind": "Event", "apiVersion": "events.k8s.io/v1"}


def to_core(event: JSON) -> JSON:
    """An events.k8s.io/v1 event as core/v1."""
    renamed = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return {**renamed, "kind": "Event", "apiVersion": "v1"}


def check_new(event: JSON) -> list[Cause]:
    """Check a new event, in the core/v1 form, for the fields that events.k8s.io/v1 requires."""
    needed = {
        "eventTime": "eventTime",
        "reportingController": "reportingComponent",
        "reportingInstance": "reportingInstance",
        "action": "action",
        "reason": "reason",
    }
    return [
        Cause("FieldValueRequired", name, "Required value")
        for name, key in needed.items()
        if not event.get(key)
    ]


def check(event: JSON) -> list[Cause]:
    """The rule that an event is in its object's namespace (cluster-wide objects: ``default``)."""
    namespace = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if involved == namespace or (not involved and namespace in ("default", "kube-system")):
        return []
    message = f'Invalid value: "{involved}": does not match event.namespace'
    return [Cause("FieldValueInvalid", "involvedObject.namespace", message)]
