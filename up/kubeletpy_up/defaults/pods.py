"""Defaults of pods; those of every other kind are in :mod:`kubeletpy_up.defaults.others`.

Defaults that depend on the pod alone are in :mod:`kubeletpy.pods.defaults`, those that need other
objects (service account tokens, priority classes) in :mod:`kubeletpy_up.kinds.pod_admission`. Pure;
never changes its argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.pods import defaults
from kubeletpy_up.defaults import others as object_defaults
from kubeletpy_up.defaults import pod_level

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

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


def _with_pod_level(pod: JSON, given: JSON) -> JSON:
    resources = (given.get("spec") or {}).get("resources")
    if resources is None:
        return pod
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "resources": pod_level.resources(resources, spec)}}


def pod_spec(spec: JSON) -> JSON:
    """A pod's spec with its defaults, and what admission gives every pod."""
    filled = defaults.fill(
        defaults.pod_spec(spec), {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    )
    filled["tolerations"] = tolerations(spec.get("tolerations") or [])
    return filled


def tolerations(given: list[JSON]) -> list[JSON]:
    """The given tolerations, and 300 s for a node that is not ready or is unreachable."""
    filled = list(given)
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(_tolerates_no_execute(toleration, key) for toleration in given):
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
