"""Merges what the sources deliver into operations on pods (docs/reference, sync loop: merge).

Pure: the time comes in as an argument, nothing is sent or logged. Objects are never changed in
place; a pod that goes out carries the annotations config.source and config.seen. A single watch
event (``apply_event``) has the same effect as a full set with that one change (``set_pods``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.api.times import format_micro_time
from kubeletpy.pods.pod import (
    CONFIG_MIRROR,
    CONFIG_SEEN,
    CONFIG_SOURCE,
    MalformedPod,
    Pod,
)
from kubeletpy.pods.shape import pod_problem
from kubeletpy.syncloop.operations import Duplicate, Merged, Op, Operation

_LOCAL = (CONFIG_SOURCE, CONFIG_SEEN, CONFIG_MIRROR)
_ORDER = (Op.REMOVE, Op.ADD, Op.UPDATE, Op.DELETE)


@dataclass(slots=True)
class _Source:
    """One source: what it delivered, and what of that is in use."""

    delivered: dict[str, Pod] = field(default_factory=dict)
    """uid -> object as it came, in order of arrival."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """full name -> uids delivered under it, in order of arrival."""
    merged: dict[str, Pod] = field(default_factory=dict)
    """uid -> annotated pod."""
    seen: bool = False


class Merge:
    """The pods of all sources."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def seen(self, source: str) -> bool:
        """Whether a source has delivered its set."""
        return source in self._sources and self._sources[source].seen

    def pods(self, source: str) -> Mapping[str, Pod]:
        """uid -> pod as it was handed out."""
        known = self._sources.get(source)
        return {} if known is None else known.merged

    def delivered(self, source: str) -> dict[str, api.Pod]:
        """uid -> object as the source delivered it."""
        known = self._sources.get(source)
        return {} if known is None else {uid: p.object for uid, p in known.delivered.items()}

    def set_pods(self, source: str, objects: Iterable[api.Pod], now: float) -> Merged:
        """Take the full set of a source. ``now`` in Unix seconds."""
        state = self._sources.setdefault(source, _Source())
        malformed: list[str] = []
        delivered: dict[str, Pod] = {}
        names: dict[str, list[str]] = {}
        for obj in objects:
            try:
                pod = _checked(obj)
            except MalformedPod as error:
                malformed.append(_malformed(source, obj, error))
                continue
            if pod.uid not in delivered:
                names.setdefault(pod.full_name, []).append(pod.uid)
            delivered[pod.uid] = pod
        hidden_before = _hidden(state.names)
        state.delivered, state.names = delivered, names
        changes = _Changes(source)
        for uid in [uid for uid in state.merged if uid not in _visible(names)]:
            changes.add(Op.REMOVE, state.merged.pop(uid))
        for uids in names.values():
            self._merge_one(state, changes, uids[0], now)
        for uid in sorted(_hidden(names) - hidden_before):
            changes.duplicate(delivered[uid])
        first, state.seen = not state.seen, True
        return changes.merged(first=first, malformed=malformed)

    def apply_event(self, source: str, event_type: str, obj: api.Pod, now: float) -> Merged:
        """Take one change: ADDED, MODIFIED or DELETED, as a watch names them."""
        state = self._sources.setdefault(source, _Source())
        try:
            pod = _checked(obj)
        except MalformedPod as error:
            return self._malformed_event(state, source, obj, _malformed(source, obj, error), now)
        known = state.delivered.get(pod.uid)
        alone = state.names.get(pod.full_name, [pod.uid]) == [pod.uid]
        if not alone or (known is not None and known.full_name != pod.full_name):
            return self._apply_slowly(state, source, event_type, pod, now)
        changes = _Changes(source)
        if event_type == "DELETED":
            state.delivered.pop(pod.uid, None)
            state.names.pop(pod.full_name, None)
            if pod.uid in state.merged:
                changes.add(Op.REMOVE, state.merged.pop(pod.uid))
        else:
            state.delivered[pod.uid] = pod
            state.names[pod.full_name] = [pod.uid]
            self._merge_one(state, changes, pod.uid, now)
        return changes.merged(first=False)

    def _apply_slowly(
        self, state: _Source, source: str, event_type: str, pod: Pod, now: float
    ) -> Merged:
        delivered = dict(state.delivered)
        if event_type == "DELETED":
            delivered.pop(pod.uid, None)
        else:
            delivered[pod.uid] = pod
        return self._whole(state, source, delivered, now)

    def _malformed_event(
        self, state: _Source, source: str, obj: Any, problem: str, now: float
    ) -> Merged:
        """A pod that has become malformed is as good as gone: a full set would leave it out."""
        metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
        uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
        delivered = {key: pod for key, pod in state.delivered.items() if key != uid}
        merged = self._whole(state, source, delivered, now)
        return Merged(merged.operations, merged.duplicates, (problem, *merged.malformed))

    def _whole(
        self, state: _Source, source: str, delivered: Mapping[str, Pod], now: float
    ) -> Merged:
        seen, state.seen = state.seen, True
        merged = self.set_pods(source, [pod.object for pod in delivered.values()], now)
        state.seen = seen
        return merged

    def _merge_one(self, state: _Source, changes: _Changes, uid: str, now: float) -> None:
        pod, existing = state.delivered[uid], state.merged.get(uid)
        if existing is None:
            merged = _annotated(pod, changes.source, _seen(now))
            changes.add(Op.ADD, merged)
        else:
            merged = _annotated(
                pod, changes.source, existing.annotations.get(CONFIG_SEEN, ""), existing
            )
            if (op := change(existing, merged)) is not None:
                changes.add(op, merged)
        state.merged[uid] = merged


def change(existing: Pod, new: Pod) -> Op | None:
    """What kind of change lies between two objects of one pod; None: none that counts."""
    old_meta, meta = existing.metadata, new.metadata
    differs = (
        existing.spec != new.spec
        or (old_meta.get("labels") or {}) != (meta.get("labels") or {})
        or old_meta.get("deletionTimestamp") != meta.get("deletionTimestamp")
        or old_meta.get("deletionGracePeriodSeconds") != meta.get("deletionGracePeriodSeconds")
        or _foreign(existing.annotations) != _foreign(new.annotations)
    )
    if differs:
        return Op.DELETE if new.being_deleted else Op.UPDATE
    return Op.RECONCILE if existing.status != new.status else None


class _Changes:
    """Collects what a delivery comes to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._pods: dict[Op, list[Pod]] = {}
        self._duplicates: list[Duplicate] = []

    def add(self, op: Op, pod: Pod) -> None:
        self._pods.setdefault(op, []).append(pod)

    def duplicate(self, pod: Pod) -> None:
        self._duplicates.append(
            Duplicate(
                pod,
                f"Error validating pod {pod.description} from {self.source} due to duplicate "
                f'pod name "{pod.name}", ignoring',
            )
        )

    def merged(self, *, first: bool, malformed: Iterable[str] = ()) -> Merged:
        operations = [
            Operation(op, self.source, tuple(self._pods[op])) for op in _ORDER if op in self._pods
        ]
        if first and not any(op in self._pods for op in (Op.ADD, Op.UPDATE, Op.DELETE)):
            operations.append(Operation(Op.ADD, self.source))
        if Op.RECONCILE in self._pods:
            operations.append(Operation(Op.RECONCILE, self.source, tuple(self._pods[Op.RECONCILE])))
        return Merged(tuple(operations), tuple(self._duplicates), tuple(malformed))


def _seen(now: float) -> str:
    return f"{format_micro_time(now)[:-1]}000Z"


def _visible(names: Mapping[str, list[str]]) -> set[str]:
    return {uids[0] for uids in names.values()}


def _hidden(names: Mapping[str, list[str]]) -> set[str]:
    return {uid for uids in names.values() for uid in uids[1:]}


def _foreign(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _LOCAL}


def _annotated(pod: Pod, source: str, seen: str, existing: Pod | None = None) -> Pod:
    annotations = dict(pod.annotations)
    if existing is not None and CONFIG_MIRROR in existing.annotations:
        # a mirror stays one: it must never turn into a pod of its own
        annotations[CONFIG_MIRROR] = existing.annotations[CONFIG_MIRROR]
    annotations[CONFIG_SOURCE] = source
    annotations[CONFIG_SEEN] = seen
    metadata = {**pod.metadata, "annotations": annotations}
    return Pod({**pod.object, "metadata": metadata})  # type: ignore[typeddict-item]


def _checked(obj: api.Pod) -> Pod:
    """The pod, when every field of it has the type that it must have. Raises MalformedPod."""
    if problem := pod_problem(obj):
        raise MalformedPod(problem)
    return Pod(obj)


def _malformed(source: str, obj: object, error: MalformedPod) -> str:
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    if isinstance(metadata, Mapping):
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        return f"pod {name} from {source}: {error}"
    return f"object from {source}: {error}"
