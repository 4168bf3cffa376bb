"""What a pod as a whole is allocated and has: ``allocatedResources``, ``resources`` of its status.

Pure. What it has is the sum of what its containers have, as the pod's own cgroup is computed from
them. Source: docs/reference/behaviour.md, e4; KEP-5419.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.api.quantity import spelled
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.replaced import replaced_containers
from kubeletpy.pods.resources import COMPUTE, Amounts, limited, pod_limits, pod_requests


def pod_level_resources(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    given: api.ResourceRequirements | None,
    phase: str,
) -> api.PodStatus:
    """The two fields, as far as they have content.

    Args:
        pod: the pod as allocated.
        containers: the new statuses, by name.
        given: the pod-level resources last given to the pod, if it has any.

    Raises:
        ValueError: a request or limit is not a quantity.
    """
    made: api.PodStatus = {}
    allocated = pod_requests(pod)
    own: dict[str, Any] = {**(pod.spec.get("resources") or {})}
    limits = pod_limits(pod)
    if not allocated and not limits:
        return made
    if allocated:
        made["allocatedResources"] = words(allocated)
    if phase != "Running":
        own |= {"requests": words(allocated), "limits": words(limits)}
    else:
        actual = _as_it_is(pod, containers, given)
        own |= actual.spec.get("resources") or {}
        own["requests"] = {**(own.get("requests") or {}), **_compute(pod_requests(actual))}
        kept = {name: amount for name, amount in pod_limits(actual).items() if limited(pod, name)}
        own["limits"] = {**(own.get("limits") or {}), **_compute(kept)}
    made["resources"] = {key: value for key, value in own.items() if value}  # type: ignore[typeddict-item]
    return made


def words(amounts: Amounts) -> dict[str, str]:
    """Amounts as the API formats them."""
    return {name: spell(name, amount) for name, amount in sorted(amounts.items())}


def spell(name: str, amount: Decimal) -> str:
    """One amount in its shortest form: ``1500m``, ``2``, ``96Mi``, ``100M``."""
    if name == "cpu":
        milli = int((amount * 1000).to_integral_value(ROUND_CEILING))
        return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
    number = int(amount.to_integral_value(ROUND_CEILING))
    return spelled(number, binary=number % 1024 == 0)


def _compute(amounts: Amounts) -> dict[str, str]:
    return words({name: amounts[name] for name in COMPUTE if name in amounts})


def _as_it_is(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    given: api.ResourceRequirements | None,
) -> Pod:
    changed = replaced_containers(
        pod, lambda container, init: _shown(container, containers.get(container["name"]))
    )
    spec: dict[str, Any] = {**pod.spec, **changed}
    if given is not None and pod.spec.get("resources"):
        spec["resources"] = given
    return Pod({**pod.object, "spec": spec})  # type: ignore[typeddict-item]


def _shown(container: api.Container, status: api.ContainerStatus | None) -> api.Container:
    resources = (status or {}).get("resources")
    return container if resources is None else {**container, "resources": resources}
