"""A pod's requests, and the check whether a resize exceeds its node's resources. Pure."""

from __future__ import annotations

from collections import Counter

from kubeletpy.base.api import quantity
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import forbidden


def requests_of(pod: JSON) -> dict[str, int]:
    """A pod's requests, in thousandths: the larger of its containers' sum and any init step.

    Restartable init containers (sidecars) count as containers, and with the init containers after
    them. The pod's overhead is added; a pod-level request overrides the containers'.
    """
    spec: JSON = pod.get("spec") or {}
    total: Counter[str] = Counter()
    sidecars: Counter[str] = Counter()
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(asked)
            asked = {}
        for name in sidecars.keys() | asked.keys():
            peak[name] = max(peak.get(name, 0), sidecars[name] + asked.get(name, 0))
    for container in spec.get("containers") or ():
        total.update(_asked(container))
    total.update(sidecars)
    found = {n: max(total[n], peak.get(n, 0)) for n in total.keys() | peak.keys()}
    found.update(_asked(spec))
    for name, amount in amounts(spec.get("overhead")).items():
        found[name] = found.get(name, 0) + amount
    return found


def _asked(holder: JSON) -> dict[str, int]:
    return amounts((holder.get("resources") or {}).get("requests"))


def amounts(given: JSON | None) -> dict[str, int]:
    """A resource list in thousandths."""
    return {name: quantity.milli_value(amount) for name, amount in (given or {}).items()}


def check_resize(pod: JSON, node: JSON | None) -> None:
    """Refuse a resized pod that requests more than its node has; an unbound pod is fine.

    Raises:
        ApiError: 403, with the cause NodeCapacity or UnsupportedPlatform.
    """
    bound_to, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
    if not bound_to:
        return
    if node is None:
        raise forbidden("pods", name, f'node "{bound_to}" not found')
    system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        why = f'pod resize is only supported on linux nodes, node "{bound_to}" is "{system}"'
        _refuse(name, why, "UnsupportedPlatform")
    room = amounts((node.get("status") or {}).get("allocatable"))
    asked = requests_of(pod)
    problems = []
    for resource, unit in (("cpu", 1), ("memory", 1000)):
        wanted, there = asked.get(resource, 0), room.get(resource, 0)
        if wanted > there:
            problem = f"{resource}, requested: {wanted // unit}, allocatable: {there // unit}"
            problems.append(problem)
    if problems:
        why = "node didn't have enough allocatable resources: " + "; ".join(problems)
        _refuse(name, why, "NodeCapacity")


def _refuse(name: str, why: str, reason: str) -> None:
    refusal = forbidden("pods", name, why)
    refusal.details["causes"] = [{"reason": reason}]
    raise refusal
