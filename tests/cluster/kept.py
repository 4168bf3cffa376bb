"""Fields of pods and nodes that no switch between the Go kubelet and the agent may change."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.base.api.types import JSON
from tests.cluster.rich_pods import lasting

AGENT, KUBELET = "agent", "kubelet"


def kept_fields(pod: JSON) -> JSON:
    """Fields of a pod that no switch may change."""
    sizes = {
        each["name"]: [each.get("resources"), each.get("allocatedResources")]
        for each in pod["status"].get("containerStatuses") or ()
    }
    found = {**lasting(pod), "sizes": sizes}
    if "kubernetes.io/config.mirror" in pod["metadata"].get("annotations", {}):
        # the Go kubelet writes the times of static pods anew at its start
        del found["startTime"]
        found["conditions"] = {name: each[0] for name, each in found["conditions"].items()}
    if found["phase"] == "Succeeded":
        del found["podIP"]  # a program that starts cannot read the address of a removed sandbox
    return found


def conditions(item: JSON) -> JSON:
    """The conditions of a node or a pod, with the times of their last transitions."""
    return {
        each["type"]: [each["status"], each["lastTransitionTime"]]
        for each in item["status"]["conditions"]
    }


def side_at(moment: float, switches: Sequence[tuple[str, float]]) -> str:
    """The program that had the node at a moment, in seconds since the epoch.

    ``switches``: to which program each one was, and when it began.
    """
    turns = [(KUBELET, 0.0), *switches]
    number, (name, _) = max(each for each in enumerate(turns) if each[1][1] <= moment)
    return f"{number} {name}"
