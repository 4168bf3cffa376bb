"""A pod's containers with some of them replaced. Pure; must never change an object in place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod


def replaced_containers(
    pod: Pod, replace: Callable[[api.Container, bool], api.Container]
) -> dict[str, Any]:
    """The container lists of a pod's spec (containers, initContainers) that were changed.

    ``replace`` gets each container and whether it is an init container; it returns the same object
    for one that stays.
    """
    changed: dict[str, Any] = {}
    for key in ("containers", "initContainers"):
        listed: list[api.Container] = pod.spec.get(key) or []  # type: ignore[assignment]
        made = [replace(container, key == "initContainers") for container in listed]
        if any(map(operator.is_not, made, listed)):
            changed[key] = made
    return changed
