"""Checks of a resize of an existing pod.

It may change cpu, memory and the sizes of volumes in memory, and never the pod's QoS class.
The order of the checks and their messages are the API server's (1.37). A decrease is allowed, of
memory too: whether it can be done is the node's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.base.api.quantity import value
from kubeletpy.pods.resources import COMPUTE
from kubeletpy_up.kinds import pods
from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_KINDS = ("requests", "limits")
_LISTS = ("initContainers", "containers")


def validate(report: Report, new: JSON, old: JSON) -> None:
    """Check a pod as it would be after a resize."""
    after, before = new["spec"], old["spec"]
    if ((before.get("os") or {}).get("name")) == "windows":
        report.forbidden("", "windows pods cannot be resized")
        return
    had = (old.get("status") or {}).get("qosClass") or pods.qos_class(before)
    if pods.qos_class(after) != had:
        report.invalid("spec", had, "Pod QOS Class may not change as a result of resizing")
    if not _node_can(old):
        report.forbidden("spec", "Pod running on node without support for resize")
    _pod_level(report, after.get("resources"), before.get("resources"))
    if not _same_order(report, after, before):
        return
    for key in _LISTS:
        for index, container in enumerate(after.get(key) or ()):
            path = f"spec.{key}[{index}].resources"
            _kept(report, container.get("resources"), before[key][index].get("resources"), path)
    for key in _LISTS:
        for index, container in enumerate(after.get(key) or ()):
            _only_compute(report, container, before[key][index], key, index)
    _volumes(report, after.get("volumes") or [], before.get("volumes") or [])


def _node_can(pod: JSON) -> bool:
    """A node that reports no resources of its running containers can't resize."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if "running" in (status.get("state") or {}):
            return "resources" in status
    return True


def _pod_level(report: Report, new: JSON | None, old: JSON | None) -> None:
    if not _named(new) and not _named(old):
        return
    for kind in _KINDS:
        if _removed(new, old, kind):
            detail = f"pod-level resource {kind} cannot be removed"
            report.forbidden(f"spec.resources.{kind}", detail)
    if _without_compute(new) != _without_compute(old):
        report.forbidden("spec", "only cpu and memory resources are mutable at pod-level")


def _same_order(report: Report, new: JSON, old: JSON) -> bool:
    fine = True
    for key in ("containers", "initContainers"):
        after, before = new.get(key) or [], old.get(key) or []
        if len(after) != len(before):
            report.forbidden(f"spec.{key}", f"{key} may not be added or removed on resize")
            fine = False
            continue
        for index, (one, other) in enumerate(zip(after, before, strict=True)):
            if one.get("name") != other.get("name"):
                path = f"spec.{key}[{index}].name"
                report.forbidden(path, f"{key} may not be renamed or reordered on resize")
                fine = False
    return fine


def _kept(report: Report, new: JSON | None, old: JSON | None, path: str) -> None:
    for kind in _KINDS:
        if _removed(new, old, kind):
            report.forbidden(f"{path}.{kind}", f"resource {kind} cannot be removed")


def _only_compute(report: Report, new: JSON, old: JSON, key: str, index: int) -> None:
    path = "spec" if key == "containers" else f"spec.{key}[{index}]"
    if _stripped(new) != _stripped(old):
        of_init = " for init or sidecar containers" if key == "initContainers" else ""
        report.forbidden(path, f"only cpu and memory resources{of_init} are mutable")
    if key == "containers" or new.get("restartPolicy") == "Always" or new == old:
        return
    for policy in new.get("resizePolicy") or ():
        if policy.get("restartPolicy") == "RestartContainer":
            detail = (
                "non-sidecar init containers with a resize policy of RestartContainer cannot be "
                "resized"
            )
            report.forbidden(path, detail)


def _volumes(report: Report, new: list[JSON], old: list[JSON]) -> None:
    """They differ with gate InPlacePodVerticalScalingMemoryBackedVolumes only."""
    if len(new) != len(old):
        report.forbidden("spec.volumes", "volumes may not be added or removed on resize")
        return
    for index, (one, other) in enumerate(zip(new, old, strict=True)):
        path = f"spec.volumes[{index}]"
        if one.get("name") != other.get("name"):
            detail = "volumes may not be renamed or reordered on resize"
            report.forbidden(f"{path}.name", detail)
        elif _without_size(one) != _without_size(other):
            detail = "only sizeLimit of memory-backed emptyDir volumes is mutable on resize"
            report.forbidden(path, detail)
        elif one.get("emptyDir") is not None:
            _size(report, one["emptyDir"], other["emptyDir"], f"{path}.emptyDir.sizeLimit")


def _without_size(volume: JSON) -> JSON:
    source = volume.get("emptyDir")
    if source is None:
        return volume
    return {**volume, "emptyDir": {k: v for k, v in source.items() if k != "sizeLimit"}}


def _size(report: Report, new: JSON, old: JSON, path: str) -> None:
    after, before = value(new.get("sizeLimit") or 0), value(old.get("sizeLimit") or 0)
    if bool(after) != bool(before):
        detail = "adding or removing sizeLimit on an existing volume is not allowed"
        report.forbidden(path, detail)
    elif after != before and new.get("medium") != "Memory":
        detail = "sizeLimit is only mutable for memory-backed emptyDir volumes"
        report.forbidden(path, detail)


def _stripped(container: JSON) -> JSON:
    return {**container, "resources": _without_compute(container.get("resources"))}


def _without_compute(resources: JSON | None) -> JSON:
    """The remaining resources, by value."""
    rest: JSON = {key: value for key, value in (resources or {}).items() if key not in _KINDS}
    for kind in _KINDS:
        rest[kind] = {
            name: formats.read(str(amount))[0]
            for name, amount in _amounts(resources, kind).items()
            if name not in COMPUTE
        }
    return rest


def _removed(new: JSON | None, old: JSON | None, kind: str) -> bool:
    return not _amounts(old, kind).keys() <= _amounts(new, kind).keys()


def _named(resources: JSON | None) -> bool:
    return any(_amounts(resources, kind) for kind in _KINDS)


def _amounts(resources: JSON | None, kind: str) -> dict[str, Any]:
    return (resources or {}).get(kind) or {}
