"""Messages of events about a resize: which resources, for which generation, and what went wrong.

Pure. Source: docs/reference/events.csv: ResizeStarted, ResizeCompleted, ResizeError,
ResizeDeferred, ResizeInfeasible.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod

STARTED = "Pod resize started"
COMPLETED = "Pod resize completed"
FAILED = "Pod resize error"


def resize_message(words: str, pod: Pod, generation: int, error: str = "") -> str:
    """The event's message: ``words`` and a JSON summary of what the pod requests.

    ``resources`` beside the containers are those of the pod itself.
    """
    summary: dict[str, Any] = {}
    if pod.init_containers:
        summary["initContainers"] = _listed(pod.init_containers)
    summary["containers"] = _listed(pod.containers)
    if own := _resources(pod.spec):
        summary["resources"] = own
    summary["generation"] = generation
    if error:
        summary["error"] = error
    return f"{words}: {json.dumps(summary, separators=(',', ':'), ensure_ascii=False)}"


def _listed(containers: Sequence[api.Container]) -> list[dict[str, Any]]:
    return [
        {"name": container["name"], "resources": _resources(container)} for container in containers
    ]


def _resources(container: api.Container | api.PodSpec) -> dict[str, Any]:
    resources = container.get("resources") or {}
    shown: dict[str, Any] = {}
    for kind in ("limits", "requests"):
        amounts: dict[str, str] = resources.get(kind) or {}  # type: ignore[assignment]
        if amounts:
            shown[kind] = {name: amounts[name] for name in sorted(amounts)}
    if resources.get("claims"):
        shown["claims"] = resources["claims"]
    return shown
