"""A pod as large as it may be at this moment: what it is given, or still has from before.

While a resize is being done a container has what it had, and will have what it is given; until the
node says that it is done, both count. Pure. Source: docs/reference, admission (fit); KEP-1287.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse
from kubeletpy.pods.pod import Pod, is_sidecar

COMPUTE = ("cpu", "memory")


def in_force(pod: Pod) -> Pod:
    """The pod with the greatest of requests, allocated and actual amounts, as its status has them.

    What is asked for by a resize that can never be does not count. The pod itself when its requests
    are what counts. Raises ValueError for what is not a quantity.
    """
    if not pod.status.get("containerStatuses"):
        return pod
    counts = not _asks_in_vain(pod)
    changed: dict[str, Any] = {}
    for key, statuses in (
        ("containers", pod.status.get("containerStatuses")),
        ("initContainers", pod.status.get("initContainerStatuses")),
    ):
        listed: list[api.Container] = pod.spec.get(key) or []  # type: ignore[assignment]
        told = {status.get("name"): status for status in statuses or ()}
        raised = [
            container
            if key == "initContainers" and not is_sidecar(container)
            else _raised(container, told.get(container["name"]), counts)
            for container in listed
        ]
        if any(new is not old for new, old in zip(raised, listed, strict=True)):
            changed[key] = raised
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
