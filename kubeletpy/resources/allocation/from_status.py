"""Finds the resources allocated to a pod, as far as its status in the API shows them.

For a running pod that is in no readable state file: the node ran an agent without one before, or
the file is lost. Pure.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, raised_by_claims
from kubeletpy.resources.allocation.resources import PodResources, Requirements, of_pod


def reported_resources(pod: Pod) -> PodResources:
    """Requests (as allocated) and limits (in force) as reported; for the rest, the spec's.

    Limits of containers with claims are the spec's: those in force contain what the claims add.
    """
    wanted = of_pod(pod)
    reported = {
        status.get("name") or "": status
        for key in ("containerStatuses", "initContainerStatuses")
        for status in _statuses(pod, key)
    }
    containers = {
        name: _reported(requirements, reported.get(name), limits=not raised_by_claims(pod, name))
        for name, requirements in wanted.containers.items()
    }
    pod_level = wanted.pod
    if pod_level is not None and pod.status.get("resources"):
        pod_level = _overlaid(pod_level, pod.status["resources"], None)
    return PodResources(containers, pod_level)


def _statuses(pod: Pod, key: str) -> list[api.ContainerStatus]:
    return pod.status.get(key) or []  # type: ignore[return-value]


def _reported(
    wanted: Requirements, status: api.ContainerStatus | None, *, limits: bool
) -> Requirements:
    shown = (status or {}).get("resources")
    if not shown:
        return wanted
    if not limits:
        shown = {"requests": shown.get("requests") or {}}
    return _overlaid(wanted, shown, (status or {}).get("allocatedResources"))


def _overlaid(
    wanted: Requirements, shown: Requirements, allocated: dict[str, str] | None
) -> Requirements:
    """``wanted`` with the compute amounts that are shown; no resource is added or dropped."""
    made: dict[str, Any] = {**wanted}
    for kind, amounts in (
        ("requests", {**(shown.get("requests") or {}), **(allocated or {})}),
        ("limits", shown.get("limits") or {}),
    ):
        asked: dict[str, str] = wanted.get(kind) or {}  # type: ignore[assignment]
        given = {name: amounts[name] for name in COMPUTE if name in amounts and name in asked}
        if given:
            made[kind] = {**asked, **given}
    return made  # type: ignore[return-value]
