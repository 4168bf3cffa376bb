"""Defaults of pods; those of every other kind are in :mod:`kubeletpy_up.defaults.others`.

Defaults that depend on the pod alone are in :mod:`kubeletpy.pods.defaults`, those that need other
objects (service account tokens, priority classes) in :mod:`kubeletpy_up.kinds.pods`. Pure;
never changes its argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.pods import defaults
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, HUGEPAGES_PREFIX, Kind, pod_quantities
from kubeletpy_up.defaults import others as object_defaults
from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

_LISTS = ("initContainers", "containers")


def default_pod_resources(supplied: JSON | None, spec: JSON) -> JSON | None:
    """The pod-level resources of a pod: from its containers, then from each other.

    An API server does this with the gate PodLevelResourcesFixDefaulting, which is on by default
    from 1.37 on. Source: docs/reference/api-server.md, aa.

    Args:
        supplied: as the client wrote them.
        spec: with the defaults of its containers.
    """
    if supplied is None or not (supplied.get("requests") or supplied.get("limits")):
        return supplied
    requests, limits = dict(supplied.get("requests") or {}), dict(supplied.get("limits") or {})
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
    return {**supplied, **{kind: amounts for kind, amounts in filled.items() if amounts}}


def _missing_limits(spec: JSON, requests: JSON, limits: JSON) -> JSON:
    """Limits of the pod for resources that all containers limit, at least its requests."""
    each = [
        (container.get("resources") or {}).get("limits") or {}
        for key in (*_LISTS, "ephemeralContainers")
        for container in spec.get(key) or ()
    ]
    together = of_containers(spec, "limits")
    return {
        name: max(str(request), together[name], key=lambda text: formats.read(text)[0])
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


_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS = 300
_MIRROR = "kubernetes.io/config.mirror"  # a node's own pod: it has no service account


def apply_defaults(
    resource: ResourceInfo, obj: JSON, *, creating: bool = True, resizing: bool = False
) -> JSON:
    """The object with every default of its kind filled in (decoded objects only).

    Args:
        creating: the object is new; a replaced one gets no service account by default.
        resizing: a pod's resources are changed.
    """
    if (resource.group, resource.plural) == ("", "pods"):
        filled = pod(obj, creating=creating)
        return _with_pod_level(filled, obj) if creating or resizing else filled
    return object_defaults.apply(resource, obj)


def pod(obj: JSON, *, creating: bool = True) -> JSON:
    """A pod with its defaults; the QoS class is left to admission."""
    spec = pod_spec(obj.get("spec") or {})
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if _MIRROR not in ((obj.get("metadata") or {}).get("annotations") or {}):
        account = spec.get("serviceAccountName") or spec.get("serviceAccount")
        account = account or ("default" if creating else None)
        if account:
            spec["serviceAccountName"] = spec["serviceAccount"] = account
    filled = dict(obj, spec=spec)
    if not (obj.get("status") or {}).get("phase"):
        filled["status"] = {**(obj.get("status") or {}), "phase": "Pending"}
    return filled


def _with_pod_level(pod: JSON, supplied: JSON) -> JSON:
    resources = (supplied.get("spec") or {}).get("resources")
    if resources is None:
        return pod
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "resources": default_pod_resources(resources, spec)}}


def pod_spec(spec: JSON) -> JSON:
    """A pod's spec with its defaults, and what admission gives every pod."""
    filled = defaults.fill(
        defaults.pod_spec(spec), {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    )
    filled["tolerations"] = tolerations(spec.get("tolerations") or [])
    return filled


def tolerations(supplied: list[JSON]) -> list[JSON]:
    """The given tolerations, and 300 s for a node that is not ready or is unreachable."""
    filled = list(supplied)
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_tolerates_no_execute(toleration, key) for toleration in supplied):
            filled.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
            )
    return filled


def _tolerates_no_execute(toleration: JSON, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (
        None,
        "",
        "NoExecute",
    )
