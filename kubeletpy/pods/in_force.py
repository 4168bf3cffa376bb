"""A pod as large as it may be at this moment: what it is given, or still has from before.

While a resize is being done a container has what it had, and will have what it is given; until the
node says that it is done, both count. Pure. Source: docs/reference/behaviour.md, l; KEP-1287.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.replaced import replaced_containers
from kubeletpy.pods.resources import COMPUTE


def in_force(pod: Pod) -> Pod:
    """The pod with the greatest of requests, allocated and actual amounts, as its status has them.

    What is asked for by a resize that can never be does not count. The pod itself when its requests
    are what counts. Raises ValueError for what is not a quantity.
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
    shown = (status or {}).get("resources")
    if status is None or not shown:
        return container
    resources = container.get("resources") or api.ResourceRequirements()
    requests = resources.get("requests") or {}
    actual, allocated = shown.get("requests") or {}, status.get("allocatedResources") or {}
    greatest = _greatest(requests, (actual, allocated), counts)
    if greatest is requests:
        return container
    return {**container, "resources": {**resources, "requests": greatest}}


def _greatest(
    requests: dict[str, str], others: Iterable[Mapping[str, str]], counts: bool
) -> dict[str, str]:
    """Of cpu and memory the greatest amount named; ``requests`` itself when it has them all.

    ``counts``: whether the amounts of ``requests`` are among them.
    """
    found = requests
    if not counts:
        found = {name: text for name, text in requests.items() if name not in COMPUTE}
    for other in others:
        for name in COMPUTE:
            text, known = other.get(name), found.get(name)
            if text is None or text == known:
                continue
            if parse(text) > parse(known or "0"):
                found = {**found, name: text}
    return found
