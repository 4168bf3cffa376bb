"""Computes ``allocatedResources`` and ``resources`` of a pod's status.

Pure. The pod's ``resources`` are the sum of its containers', as the pod's own cgroup is computed
from them. Amounts are exact and in the format of the spec: 10m bytes of memory stay ``10m``.

Source: docs/reference/behaviour.md, e4; KEP-5419.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity
from kubeletpy.pods.pod import Pod, replaced_containers
from kubeletpy.pods.resources import COMPUTE, QoSClass, claims, limited, pod_quantities, qos_class

NOTHING: Mapping[str, api.ResourceRequirements] = {}


def pod_level_resources(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    given: api.ResourceRequirements | None,
    phase: str,
    actuated: Mapping[str, api.ResourceRequirements] = NOTHING,
) -> api.PodStatus:
    """The two fields, as far as they have content.

    Args:
        pod: the pod as allocated.
        containers: the new statuses, by name.
        given: the pod-level resources last given to the pod, if it has any.
        actuated: what containers were last given, by name. Used for pods with claims, as the limits
            in their containers' statuses contain what the claims add.

    Raises:
        ValueError: a request or limit is not a quantity.
    """
    made: api.PodStatus = {}
    allocated = pod_quantities(pod, "requests", with_claims=True)
    own: dict[str, Any] = {**(pod.spec.get("resources") or {})}
    limits = pod_quantities(pod, "limits", with_claims=True)
    if not allocated and not limits:
        return made
    if allocated:
        made["allocatedResources"] = words(allocated)
    if phase != "Running":
        own |= {"requests": words(allocated), "limits": words(limits)}
    else:
        if claims(pod):
            containers = _without_claims(containers, actuated)
        requested, limiting = allocated, limits
        actual = _as_it_is(pod, containers, given)
        if actual is not pod:
            own |= actual.spec.get("resources") or {}
            requested = pod_quantities(actual, "requests", with_claims=True)
            limiting = pod_quantities(actual, "limits", with_claims=True)
        requests = _compute(requested)
        if qos_class(pod) is QoSClass.BEST_EFFORT:
            requests.pop("cpu", None)  # its cgroup has the minimum, whatever its claims add
        own["requests"] = {**(own.get("requests") or {}), **requests}
        kept = {name: amount for name, amount in limiting.items() if limited(pod, name)}
        own["limits"] = {**(own.get("limits") or {}), **_compute(kept)}
    made["resources"] = {key: value for key, value in own.items() if value}  # type: ignore[typeddict-item]
    return made


def words(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Amounts as the API formats them."""
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def _compute(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return words({name: amounts[name] for name in COMPUTE if name in amounts})


def _without_claims(
    containers: Mapping[str, api.ContainerStatus], actuated: Mapping[str, api.ResourceRequirements]
) -> Mapping[str, api.ContainerStatus]:
    return {
        name: {**containers[name], "resources": given}
        for name, given in actuated.items()
        if "running" in (containers.get(name, {}).get("state") or {})
    }


def _as_it_is(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    given: api.ResourceRequirements | None,
) -> Pod:
    """The pod with the resources that its statuses show; the same object if it has them."""
    changed = replaced_containers(
        pod, lambda container, init: _shown(container, containers.get(container["name"]))
    )
    if given is not None and pod.spec.get("resources"):
        changed["resources"] = given
    if all(pod.spec.get(field) == value for field, value in changed.items()):
        return pod
    return Pod({**pod.object, "spec": {**pod.spec, **changed}})  # type: ignore[typeddict-item]


def _shown(container: api.Container, status: api.ContainerStatus | None) -> api.Container:
    resources = (status or {}).get("resources")
    if resources is None or resources == container.get("resources"):
        return container
    return {**container, "resources": resources}
