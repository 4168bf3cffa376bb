"""The uid of a static pod whose manifest has none. Pure.

The kubelet's uid is a hash of the manifest as Go's types hold it, which can't be repeated here. A
pod that a kubelet has started therefore keeps its uid if it is shown that it runs that manifest. A
manifest that may have been changed since is a new pod. Source: docs/reference/behaviour.md, s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.pods import defaults
from kubeletpy.pods.defaults import canonical_spec
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, Pod
from kubeletpy.runtime_manager.names import container_hash

MARGIN_S = 1.0
"""Seconds: a file that changed closer than this to the moment when it was seen may be newer."""
ADMITTED = frozenset({"priority", "preemptionPolicy"})
"""Fields of a spec that the API server's admission adds to every pod."""


class UidReason(StrEnum):
    """Why a static pod has its uid."""

    COMPUTED = "no pod of that name runs"
    OWN = "the running pod has the uid that the agent computes from the manifest"
    RECORDED = "the agent has recorded that the running pod's uid belongs to this manifest"
    MIRROR = "the mirror pod of the running pod has the spec of this manifest"
    UNTOUCHED = "the manifest file has not been changed since the running pod was configured"
    CHANGED = "the manifest differs from what the running pod was made from"
    UNPROVEN = "nothing shows that the running pod was made from this manifest"


ADOPTED = frozenset({UidReason.RECORDED, UidReason.MIRROR, UidReason.UNTOUCHED})
REMADE = frozenset({UidReason.CHANGED, UidReason.UNPROVEN})


class RunningStaticPod(Struct, frozen=True):
    """The runtime's record of a pod with a running sandbox.

    Attributes:
        seen: Unix seconds at which an agent first saw its manifest; 0: unknown.
        hashes: the hash of each container's definition, by name.
    """

    uid: str
    seen: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hashes: Mapping[str, str]


class UidChoice(Struct, frozen=True):
    """The uid of a static pod, and why; ``detail``: what differs, or is missing."""

    uid: str
    reason: UidReason
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason for people."""
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


def choose_uid(
    pod: Pod,
    source: str,
    running: Sequence[RunningStaticPod],
    *,
    recorded: str = "",
    changed_at: float | None = None,
    mirror: JSON | None = None,
) -> UidChoice:
    """The uid of a static pod.

    Args:
        pod: as made from the manifest, with the uid that the agent computes.
        source: ``file`` or ``http``.
        running: pods of its name and namespace that run, the newest first.
        recorded: the uid that the agent has recorded for the computed one.
        changed_at: when the manifest file was last changed, in Unix seconds; None: not known.
        mirror: the pod of that name in the API; None: there is none, or it could not be read.
    """
    if not running:
        return UidChoice(recorded or pod.uid, UidReason.COMPUTED)
    if any(each.uid == pod.uid for each in running):
        return UidChoice(pod.uid, UidReason.OWN)
    found = running[0]
    if found.uid == recorded:
        return UidChoice(recorded, UidReason.RECORDED)
    origin = found.annotations.get(CONFIG_SOURCE, ""), found.annotations.get(CONFIG_HASH, "")
    if origin != (source, found.uid):
        return UidChoice(pod.uid, UidReason.UNPROVEN, f"it is no static pod of source {source}")
    if differs := _recorded_difference(pod, found):
        return UidChoice(pod.uid, UidReason.CHANGED, differs)
    reported = _mirror_difference(pod, found, mirror)
    if reported is not None and reported.contradicts:
        return UidChoice(pod.uid, UidReason.CHANGED, reported.path)
    if reported is None and mirror is not None and _is_mirror_of(mirror, found):
        return UidChoice(found.uid, UidReason.MIRROR)
    if changed_at is not None and 0 < changed_at < found.seen - MARGIN_S:
        return UidChoice(found.uid, UidReason.UNTOUCHED)
    return UidChoice(pod.uid, UidReason.UNPROVEN, _missing(reported, mirror, found, changed_at))


class _Difference(Struct, frozen=True):
    """The first difference of two objects.

    Attributes:
        path: the field.
        contradicts: a value of the manifest is another one there. False: there is one that the
            manifest does not have, which admission may have added.
    """

    path: str
    contradicts: bool


def _recorded_difference(pod: Pod, found: RunningStaticPod) -> str:
    """The first difference between the runtime's record and the manifest; empty: none."""
    for what, ours, theirs in (
        ("label", pod.labels, found.labels),
        ("annotation", _own(pod.annotations), found.annotations),
    ):
        for key, value in ours.items():
            if theirs.get(key) != value:
                return f"{what} {key}"
    containers = {each["name"]: container_hash(each) for _, each in pod.all_containers()}
    for name, value in found.hashes.items():
        if name not in containers or value not in ("", containers[name]):
            return f"name or image of container {name}"
    return ""


def _is_mirror_of(mirror: JSON, found: RunningStaticPod) -> bool:
    annotations = (mirror.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(CONFIG_MIRROR) == found.uid)


def _mirror_difference(
    pod: Pod, found: RunningStaticPod, mirror: JSON | None
) -> _Difference | None:
    """The first difference to the mirror of the running pod; None: there is none, or no mirror."""
    if mirror is None or not _is_mirror_of(mirror, found):
        return None
    try:
        spec = defaults.pod_spec(canonical_spec(mirror.get("spec") or {}))
    except (ValueError, TypeError, AttributeError):
        return _Difference("a spec that can't be read", contradicts=False)
    theirs = {key: value for key, value in spec.items() if key not in ADMITTED or key in pod.spec}
    metadata = mirror.get("metadata") or {}
    differences = [
        *_differences(dict(pod.spec), theirs, "spec"),
        *_differences(pod.labels, metadata.get("labels") or {}, "metadata.labels"),
        *_differences(
            _own(pod.annotations), _own(metadata.get("annotations") or {}), "metadata.annotations"
        ),
    ]
    return min(differences, key=lambda each: not each.contradicts, default=None)


def _own(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that an agent has not added."""
    added = (CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE)
    return {key: value for key, value in annotations.items() if key not in added}


def _differences(ours: Any, theirs: Any, path: str) -> Iterator[_Difference]:
    """Where two values differ; what the API leaves out, as an empty list, is no difference."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted(ours.keys() | theirs.keys()):
            where = f"{path}.{key}"
            if key not in theirs:
                if ours[key]:
                    yield _Difference(where, contradicts=True)
            elif key not in ours:
                if theirs[key] not in ({}, [], "", None):
                    yield _Difference(where, contradicts=False)
            else:
                yield from _differences(ours[key], theirs[key], where)
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(one, other, f"{path}[{index}]")
        if len(ours) != len(theirs):
            yield _Difference(path, contradicts=len(ours) > len(theirs))
    elif ours != theirs and (ours or theirs):
        yield _Difference(path, contradicts=True)


def _missing(
    reported: _Difference | None,
    mirror: JSON | None,
    found: RunningStaticPod,
    changed_at: float | None,
) -> str:
    if reported is not None:
        witness = f"its mirror pod also has {reported.path}"
    elif mirror is None:
        witness = "its mirror pod could not be read"
    else:
        witness = "the mirror pod is that of another manifest"
    if changed_at is None:
        return f"{witness}, and the manifest is not a file"
    if not found.seen:
        return f"{witness}, and its sandbox does not contain when it was configured"
    return f"{witness}, and the file was written after it was configured"
