"""Predicts the effect of a change to a pod that this node runs. Pure.

First it is decided whether the API server would take the change. Then the plans of the runtime sync
before and after it are compared: acts that the sync would do anyway are not due to the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, cast

from kubeletpy.base.api.json_patch import MalformedPatch, json_patch, merge_patch, strategic_merge
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.images.policy import ImageAction
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.foresee.model import Act, Durations, ForeseenOutcome, ImageUse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import changed_limits, qos_class, size_limits, with_size_limits
from kubeletpy.pods.runtime_status import SyncIntent

# The fields of a pod that a change touches, and how the API server takes such changes. Source:
# docs/reference/api-server.md, aa; the API server's validation of pod updates. Its checks of the
# values themselves are not repeated here.

_CONTAINER = r"(containers|initContainers)\[[^\]]*\]"
_EPHEMERAL = re.compile(r"ephemeralContainers\[[^\]]*\]")


class ChangeMethod(StrEnum):
    """The way in which a field can be changed."""

    UPDATE = "update"
    """``kubectl edit``, ``patch``, ``set image``."""
    RESIZE = "resize"
    """``kubectl patch --subresource resize``."""
    DEBUG = "debug"
    """``kubectl debug``: ephemeral containers are added."""
    NEVER = "never"
    """The pod has to be replaced."""


_METHODS: tuple[tuple[re.Pattern[str], ChangeMethod], ...] = (
    (re.compile(rf"{_CONTAINER}\.image"), ChangeMethod.UPDATE),
    (re.compile(rf"{_CONTAINER}\.resources\.(requests|limits)\.(cpu|memory)"), ChangeMethod.RESIZE),
    (re.compile(rf"{_CONTAINER}\.resizePolicy"), ChangeMethod.RESIZE),
    (re.compile(r"resources\.(requests|limits)\.(cpu|memory)"), ChangeMethod.RESIZE),
)


class Change(Struct, frozen=True):
    """One field that changes: its path below ``spec``, containers by name."""

    path: str
    way: ChangeMethod


def changes(before: Pod, after: Pod, *, memory_volumes: bool = False) -> list[Change]:
    """Return the changes in a pod's spec. Metadata and status change nothing that runs.

    ``memory_volumes``: the size limits of volumes in memory can be resized, too.
    """
    found, old = [], cast(JSON, before.spec)
    if memory_volumes and (limits := changed_limits(size_limits(before), size_limits(after))):
        found = [
            Change(f"volumes[{name}].emptyDir.sizeLimit", ChangeMethod.RESIZE)
            for name in sorted(limits)
        ]
        old = {**old, "volumes": with_size_limits(before, limits)}
    for path, value, new in _differences(old, cast(JSON, after.spec), ""):
        found.append(Change(path, _way(path, value, new)))
    return found


def _way(path: str, old: Any, new: Any) -> ChangeMethod:
    if path == "tolerations":
        kept = [_lasting(each) for each in new or ()]
        allowed = all(_lasting(each) in kept for each in old or ())
    elif path == "terminationGracePeriodSeconds":
        allowed = new == 1 and old is not None and old < 0
    elif path == "activeDeadlineSeconds":
        allowed = new is not None and (old is None or new <= old)
    elif _EPHEMERAL.fullmatch(path):
        return ChangeMethod.DEBUG if old is None else ChangeMethod.NEVER
    else:
        return next(
            (way for pattern, way in _METHODS if pattern.fullmatch(path)), ChangeMethod.NEVER
        )
    return ChangeMethod.UPDATE if allowed else ChangeMethod.NEVER


def _lasting(toleration: JSON) -> JSON:
    """Return all of a toleration but its seconds, which may change."""
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return
    if path in ("containers", "initContainers", "ephemeralContainers"):
        yield from _containers(old or [], new or [], path)
        return
    if path.endswith((".resources", ".requests", ".limits")) or path == "resources":
        yield from _differences(old or {}, new or {}, path)
        return
    yield path, old, new


def _containers(old: list[JSON], new: list[JSON], path: str) -> Iterator[tuple[str, Any, Any]]:
    before = {each.get("name"): each for each in old}
    after = {each.get("name"): each for each in new}
    for name in sorted({*before, *after}, key=str):
        place = f"{path}[{name}]"
        if name in before and name in after:
            yield from _differences(before[name], after[name], place)
        else:
            yield place, before.get(name), after.get(name)
    if list(before) != list(after) and set(before) == set(after):
        yield path, list(before), list(after)


_MAX_FIELDS = 10
"""Fields that are named in a refusal; the rest is counted."""


class Fate(Struct, frozen=True):
    """The outcome of a request for a pod, and the reason if it is refused."""

    outcome: ForeseenOutcome
    reason: str = ""
    message: str = ""


def forbidden(before: Pod, after: Pod, found: Sequence[Change]) -> Fate | None:
    """Return why the API server would not take a change, or None if it would."""
    never = [f"spec.{change.path}" for change in found if change.way is ChangeMethod.NEVER]
    if never:
        more = f" and {len(never) - _MAX_FIELDS} more" if len(never) > _MAX_FIELDS else ""
        fields = ", ".join(never[:_MAX_FIELDS])
        return Fate(
            ForeseenOutcome.FORBIDDEN,
            "Forbidden",
            f"the API server lets nobody change {fields}{more} of a pod that exists: it has to be "
            "deleted and created anew",
        )
    if any(change.way is ChangeMethod.RESIZE for change in found) and qos_class(after) != qos_class(
        before
    ):
        return Fate(
            ForeseenOutcome.FORBIDDEN,
            "Invalid",
            f"a resize may not change the pod's QoS class from {qos_class(before)} to "
            f"{qos_class(after)}",
        )
    return None


_HINTS = {
    ChangeMethod.RESIZE: "resources are changed with `kubectl patch --subresource resize`",
    ChangeMethod.DEBUG: "ephemeral containers are added with `kubectl debug`",
}
_DEADLINE = "once activeDeadlineSeconds are over the pod is stopped and Failed"


def hints(found: Sequence[Change]) -> tuple[str, ...]:
    """Return how such a change is made, and its later consequences."""
    present = {change.way for change in found}
    texts = [text for way, text in _HINTS.items() if way in present]
    if any(change.path == "activeDeadlineSeconds" for change in found):
        texts.append(_DEADLINE)
    return tuple(texts)


def restarted(before: SyncIntent, after: SyncIntent) -> tuple[str, ...]:
    """Return the containers that restart because of a change."""
    return tuple(name for name in after.started if name not in before.started)


def fate(before: SyncIntent, after: SyncIntent) -> Fate:
    """Return the effect of a change, by the plans of the runtime sync before and after it."""
    if after.ends and not before.ends:
        return Fate(ForeseenOutcome.ENDS)
    if after.new_sandbox and not before.new_sandbox:
        return Fate(ForeseenOutcome.RECREATES)
    if restarted(before, after):
        return Fate(ForeseenOutcome.RESTARTS)
    if set(after.resized) - set(before.resized):
        return Fate(ForeseenOutcome.IN_PLACE)
    return Fate(ForeseenOutcome.UNCHANGED)


def acts(
    before: SyncIntent, after: SyncIntent, images: Iterable[ImageUse], took: Durations
) -> list[Act]:
    """Return the node's acts because of the change, in order, with the reasons of the plan."""
    known = set(before.decisions)
    found = [Act(each.what, each.why) for each in after.decisions if each not in known]
    found += [
        took.act(TraceCall.PULL_IMAGE, use.image, use.why, like=use.image)
        for use in images
        if use.action == ImageAction.PULL
    ]
    for name in restarted(before, after):
        found.append(took.act(TraceCall.CREATE_CONTAINER, name))
        found.append(took.act(TraceCall.START_CONTAINER, name))
    return found


# Patches of a pod. The lists that are merged by a key are those of the API's schema (OpenAPI of
# Kubernetes 1.37, ``x-kubernetes-patch-merge-key``).


def _keyed(key: str, fields: JSON | None = None, *, retain: bool = False) -> JSON:
    strategy = "merge,retainKeys" if retain else "merge"
    items = {"properties": fields or {}}
    return {
        "x-kubernetes-patch-merge-key": key,
        "x-kubernetes-patch-strategy": strategy,
        "items": items,
    }


_CONTAINERS = _keyed(
    "name",
    {
        "env": _keyed("name"),
        "ports": _keyed("containerPort"),
        "volumeDevices": _keyed("devicePath"),
        "volumeMounts": _keyed("mountPath"),
    },
)
POD_SCHEMA: JSON = {
    "properties": {
        "spec": {
            "properties": {
                "containers": _CONTAINERS,
                "ephemeralContainers": _CONTAINERS,
                "evictionResponders": _keyed("name"),
                "initContainers": _CONTAINERS,
                "hostAliases": _keyed("ip"),
                "imagePullSecrets": _keyed("name"),
                "resourceClaims": _keyed("name", retain=True),
                "schedulingGates": _keyed("name"),
                "topologySpreadConstraints": _keyed("topologyKey"),
                "volumes": _keyed("name", retain=True),
            }
        }
    }
}


class KubectlPatchType(StrEnum):
    """The types of ``kubectl patch``, by its names."""

    STRATEGIC = "strategic"
    MERGE = "merge"
    JSON = "json"


def patched(pod: JSON, patch: Any, kind: KubectlPatchType = KubectlPatchType.STRATEGIC) -> JSON:
    """Return a pod's object with a patch of its spec; all else of the patch is left out.

    Raises MalformedPatch.
    """
    if kind is KubectlPatchType.JSON:
        return {**pod, "spec": json_patch(pod, patch).get("spec")}
    spec = patch.get("spec", {}) if isinstance(patch, dict) else None
    if not isinstance(spec, dict):
        raise MalformedPatch("the patch is no object")
    if kind is KubectlPatchType.MERGE:
        return {**pod, "spec": merge_patch(pod.get("spec"), spec)}
    return strategic_merge(POD_SCHEMA, pod, {"spec": spec})
