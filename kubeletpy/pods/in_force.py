"""The resources that a pod may use on its node now: requested, allocated, or still held.

During a resize a container has its old resources and will get those allocated to it; until the node
reports it done, both count. Pure. Source: docs/reference/behaviour.md, c10, l; KEP-1287.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.replaced import replaced_containers
from kubeletpy.pods.resources import COMPUTE, Amounts, pod_requests

_Amounts = Mapping[str, str]


def requests_in_force(pod: Pod) -> Amounts:
    """The pod's requests, of cpu and memory the maximum of those of its spec and of its status.

    The sums of all containers are compared, so that what moves from one container to another counts
    once. The requests of an infeasible resize do not count. Raises ValueError for a malformed
    quantity.
    """
    total = pod_requests(pod, with_claims=True)
    allocated = _with_requests(pod, actual=False)
    actual = _with_requests(pod, actual=True)
    if allocated is pod and actual is pod:
        return total
    sums = [pod_requests(each, with_claims=True) for each in (allocated, actual)]
    if not _resize_is_infeasible(pod):
        sums.append(total)
    for name in COMPUTE:
        if found := [each[name] for each in sums if name in each]:
            total = {**total, name: max(found)}
        else:
            total = {key: amount for key, amount in total.items() if key != name}
    return total


def _resize_is_infeasible(pod: Pod) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in pod.status.get("conditions") or ()
    )


def _with_requests(pod: Pod, *, actual: bool) -> Pod:
    """The pod with the requests that its status shows as allocated, or as in effect.

    The pod itself when its status shows nothing else than the spec.
    """
    statuses = {
        init: {status.get("name"): status for status in listed or ()}
        for init, listed in (
            (False, pod.status.get("containerStatuses")),
            (True, pod.status.get("initContainerStatuses")),
        )
    }

    def replaced(container: api.Container, init: bool) -> api.Container:
        status: Mapping[str, Any] = statuses[init].get(container["name"]) or {}
        resources: Any = container.get("resources") or {}
        given: Any = _overlaid(resources, status, actual=actual)
        return container if given is resources else {**container, "resources": given}

    changed = replaced_containers(pod, replaced)
    whole: Any = pod.spec.get("resources") or {}
    if whole.get("requests") and pod.status.get("resources"):
        names = whole["requests"].keys()
        given = _overlaid(whole, pod.status, actual=actual, names=names)
        if given is not whole:
            changed["resources"] = given
    if not changed:
        return pod
    return Pod({**pod.object, "spec": {**pod.spec, **changed}})  # type: ignore[typeddict-item]


def _overlaid(
    resources: Mapping[str, Any],
    status: Mapping[str, Any],
    *,
    actual: bool,
    names: Any = COMPUTE,
) -> Mapping[str, Any]:
    """Resources with the compute requests of a status instead; the same object if they are the
    same, or the status has none."""
    shown: _Amounts = status.get("allocatedResources") or {}
    if actual:
        shown = (status.get("resources") or {}).get("requests") or shown
    requests: _Amounts = resources.get("requests") or {}
    compute = {name: shown[name] for name in COMPUTE if name in shown and name in names}
    if not compute or all(requests.get(name) == compute.get(name) for name in COMPUTE):
        return resources
    rest = {name: amount for name, amount in requests.items() if name not in COMPUTE}
    return {**resources, "requests": {**rest, **compute}}
