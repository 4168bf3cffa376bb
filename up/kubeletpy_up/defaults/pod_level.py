"""Resources of a pod as a whole that a pod leaves out: from its containers, then from each other.

Pure. An API server does this with the gate PodLevelResourcesFixDefaulting, which is on by default
from 1.37 on. Source: docs/reference/api-server.md, aa.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, HUGEPAGES_PREFIX, Kind, pod_quantities
from kubeletpy_up.schema import quantities

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_LISTS = ("initContainers", "containers")


def resources(given: JSON | None, spec: JSON) -> JSON | None:
    """The pod-level resources of a pod.

    Args:
        given: as the client wrote them.
        spec: with the defaults of its containers.
    """
    if given is None or not (given.get("requests") or given.get("limits")):
        return given
    requests, limits = dict(given.get("requests") or {}), dict(given.get("limits") or {})
    for name, amount in of_containers(spec, "limits").items():
        if name.startswith(HUGEPAGES_PREFIX) and name not in requests:
            limits.setdefault(name, amount)
    for name, amount in of_containers(spec, "requests").items():
        if name in COMPUTE:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if _is_supported(name):
            requests.setdefault(name, amount)
    limits |= _missing_limits(spec, requests, limits)
    filled = {"requests": requests, "limits": limits}
    return {**given, **{kind: amounts for kind, amounts in filled.items() if amounts}}


def _missing_limits(spec: JSON, requests: JSON, limits: JSON) -> JSON:
    """Limits of the pod for resources that all containers limit, at least its requests."""
    each = [
        (container.get("resources") or {}).get("limits") or {}
        for key in (*_LISTS, "ephemeralContainers")
        for container in spec.get(key) or ()
    ]
    together = of_containers(spec, "limits")
    return {
        name: max(str(request), together[name], key=lambda text: quantities.read(text)[0])
        for name, request in requests.items()
        if name not in limits and _is_supported(name)
        if name in together and all(name in of_one for of_one in each)
    }


def _is_supported(name: str) -> bool:
    return name in COMPUTE or name.startswith(HUGEPAGES_PREFIX)


def of_containers(spec: JSON, which: Kind) -> dict[str, str]:
    """The containers' total requests or limits. Empty if an amount is no quantity."""
    about = {"name": "-", "namespace": "-", "uid": "-"}
    only = {"containers": [], **{key: spec[key] for key in _LISTS if spec.get(key)}}
    pod: Any = {"metadata": about, "spec": only}
    try:
        found = pod_quantities(Pod(pod), which)
    except ValueError:
        return {}
    return {name: str(amount) for name, amount in found.items()}
