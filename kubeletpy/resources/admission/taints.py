"""Which of a node's taints a pod tolerates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.pods.pod import Pod


def untolerated(
    pod: Pod, taints: Iterable[Mapping[str, Any]], effect: str
) -> list[Mapping[str, Any]]:
    """The taints with this effect that the pod does not tolerate."""
    return [each for each in taints if each.get("effect") == effect and not tolerates(pod, each)]


def tolerates(pod: Pod, taint: Mapping[str, Any]) -> bool:
    """Whether one of the pod's tolerations matches a taint; for how long does not matter."""
    tolerations: Iterable[Mapping[str, Any]] = pod.spec.get("tolerations") or ()
    return any(_is_for(toleration, taint) for toleration in tolerations)


def _is_for(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    for name in ("effect", "key"):
        wanted = toleration.get(name)
        if wanted and wanted != taint.get(name):
            return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case _:
            return False
