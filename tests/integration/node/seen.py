"""Reads pods as the API shows them. Must never send requests to the API."""

from __future__ import annotations

from kubeletpy.base.api.types import JSON


def status(pod: JSON) -> JSON:
    """A pod's status, {} when it has none."""
    found: JSON = pod.get("status") or {}
    return found


def condition(pod: JSON, kind: str) -> JSON:
    """A condition of a pod, {} when it has none."""
    return next((c for c in status(pod).get("conditions") or [] if c["type"] == kind), {})


def is_ready(pod: JSON) -> bool:
    """Whether the pod is Ready."""
    return condition(pod, "Ready").get("status") == "True"


def container_status(pod: JSON, name: str = "") -> JSON:
    """The status of a container of any kind (the first one without a name), {} when none."""
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in status(pod).get(field) or []:
            if name in ("", entry["name"]):
                found: JSON = entry
                return found
    return {}


def waiting(entry: JSON) -> JSON:
    """The waiting state of a container status, {} when it does not wait."""
    found: JSON = (entry.get("state") or {}).get("waiting") or {}
    return found


def terminated(entry: JSON, field: str = "state") -> JSON:
    """The terminated state of a container status (`field`: state or lastState)."""
    found: JSON = (entry.get(field) or {}).get("terminated") or {}
    return found


def running(entry: JSON) -> JSON:
    """The running state of a container status, {} when it does not run."""
    found: JSON = (entry.get("state") or {}).get("running") or {}
    return found
