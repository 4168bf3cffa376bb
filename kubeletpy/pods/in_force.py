"""A pod at the largest size it may have right now: what it is allocated, or still has.

During a resize a container has its old resources and will get those allocated to it; until the node
reports it done, both count. Pure. Source: docs/reference/behaviour.md, l; KEP-1287.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.replaced import replaced_containers
from kubeletpy.pods.resources import COMPUTE


def in_force(pod: Pod) -> Pod:
    """The pod with the maximum of requested, allocated and actual amounts from its status.

    What an infeasible resize asks for does not count. Returns the pod itself when its requests are
    what counts. Raises ValueError for a malformed quantity.
    """
    counts = not _asks_in_vain(pod)
    reported = {
        init: {status.get("name"): status for status in statuses or ()}
        for init, statuses in (
            (False, pod.status.get("containerStatuses")),
            (True, pod.status.get("initContainerStatuses")),
        )
    }

    def raised(container: api.Container, init: bool) -> api.Container:
        if init and not is_sidecar(container):
            return container
        return _raised(container, reported[init].get(container["name"]), counts)

    changed = replaced_containers(pod, raised)
    resources = pod.spec.get("resources")
    shown = pod.status.get("resources")
    if resources and resources.get("requests") and shown:
        allocated = pod.status.get("allocatedResources") or {}
        asked = resources["requests"]
        greatest = _greatest(asked, (shown.get("requests") or {}, allocated), counts)
        if greatest is not asked:
            changed["resources"] = {**resources, "requests": greatest}
    if not changed:
        return pod
    return Pod({**pod.object, "spec": {**pod.spec, **changed}})  # type: ignore[typeddict-item]


def _asks_in_vain(pod: Pod) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in pod.status.get("conditions") or ()
    )


def _raised(
    container: api.Container, status: api.ContainerStatus | None, counts: bool
) -> api.Container:
    if status is None or not (shown := status.get("resources")):
        return container
    resources: api.ResourceRequirements = container.get("resources") or {}
    requests = resources.get("requests") or {}
    actual, allocated = shown.get("requests") or {}, status.get("allocatedResources") or {}
    greatest = _greatest(requests, (actual, allocated), counts)
    if greatest is requests:
        return container
    return {**container, "resources": {**resources, "requests": greatest}}


def _greatest(
    requests: dict[str, str], others: Iterable[Mapping[str, str]], counts: bool
) -> dict[str, str]:
    """The maximum amounts of cpu and memory; ``requests`` itself when it already has them.

    ``counts``: whether the amounts of ``requests`` are among them.
    """
    found = requests
    if not counts:
        found = {name: text for name, text in requests.items() if name not in COMPUTE}
    for other in others:
        for name in COMPUTE:
            text = other.get(name)
            if text is not None and parse(text) > parse(found.get(name, "0")):
                found = {**found, name: text}
    return found
