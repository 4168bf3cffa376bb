"""Merges what the sources deliver into operations on pods (docs/reference/behaviour.md, a2).

Pure: the time is an argument, nothing is sent or logged. Objects are never changed in place. Merged
pods carry the annotations config.source and config.seen. A single watch event (``apply_event``) has
the same effect as a full set with that one change (``set_pods``).

An incoming object may not be a valid pod. A known pod then keeps its last good version, as it does
under an agent whose client can't decode the object; only its deletion is applied. It must never
count as removed: a typo would end what runs. An unknown pod (the agent has just started) can't be
run, but its running containers are left alone for as long as the source has it. NAMELESS stands for
an object without a known uid: a file that could not be read, and was reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_micro_time
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.pods.pod import CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, MalformedPod, Pod
from kubeletpy.pods.resources import without_claims
from kubeletpy.pods.shape import pod_problem


class Op(StrEnum):
    """The kinds of change to a source's pods (docs/reference/behaviour.md, a2)."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    REMOVE = "REMOVE"
    DELETE = "DELETE"
    """Deletion was requested; the pod still exists."""
    RECONCILE = "RECONCILE"
    """Only the API's status changed."""


class PodOperation(Struct, frozen=True):
    """One kind of change to pods of one source."""

    op: Op
    source: str
    pods: tuple[Pod, ...] = ()


class RefusedPod(Struct, frozen=True):
    """A pod left out because another of its source has its full name, or an unreadable change of
    one: the pod keeps its last good version."""

    pod: Pod
    message: str


class MergedDelivery(Struct, frozen=True):
    """The result of one delivery of a source; operations in the order to handle them."""

    operations: tuple[PodOperation, ...] = ()
    refused: tuple[RefusedPod, ...] = ()
    """For events on these pods."""
    malformed: tuple[str, ...] = ()
    """The faults of objects that are not pods; these objects are left out."""


NAMELESS: api.Pod = {}
"""Delivered by a source for something without the identity of a pod; compared by identity."""
_LOCAL = (CONFIG_SOURCE, CONFIG_SEEN, CONFIG_MIRROR)
_ORDER = (Op.REMOVE, Op.ADD, Op.UPDATE, Op.DELETE)


class _SourcePods(Struct):
    """One source: what it delivered, and what of that is in use."""

    delivered: dict[str, Pod] = field(default_factory=dict)
    """uid -> object as it came, in order of arrival."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """full name -> uids delivered under it, in order of arrival."""
    merged: dict[str, Pod] = field(default_factory=dict)
    """uid -> annotated pod."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """uid -> what is wrong with the newest object of a pod that keeps its last good version."""
    unknown: set[str] = field(default_factory=set)
    """uids of objects that can't be read and were never known."""
    nameless: bool = False
    """Whether it has something that does not even state which pod it is."""
    seen: bool = False


class Merge(Component):
    """The pods of all sources."""

    # Name of this node; empty: all pods are its own.
    node_name: str = ""
    # Gate DRANodeAllocatableResources; off: what claims add is removed.
    claims_count: bool = True
    # Every pod gets the network of the agent: nothing could connect another one.
    one_network: bool = False

    def __post_init__(self) -> None:
        self._sources: dict[str, _SourcePods] = {}

    def has_delivered(self, source: str) -> bool:
        """Whether a source has delivered its set."""
        return source in self._sources and self._sources[source].seen

    def pods(self, source: str) -> Mapping[str, Pod]:
        """uid -> pod as it was handed out."""
        known = self._sources.get(source)
        return {} if known is None else known.merged

    @property
    def unknown(self) -> frozenset[str]:
        """UIDs whose manifests could not be parsed."""
        return frozenset().union(*(state.unknown for state in self._sources.values()))

    @property
    def nameless(self) -> frozenset[str]:
        """Sources that have something which does not even state which pod it is."""
        return frozenset(name for name, state in self._sources.items() if state.nameless)

    def delivered(self, source: str) -> dict[str, api.Pod]:
        """uid -> object as the source delivered it."""
        known = self._sources.get(source)
        return {} if known is None else {uid: p.object for uid, p in known.delivered.items()}

    def set_pods(self, source: str, objects: Iterable[api.Pod], now: float) -> MergedDelivery:
        """Take the full set of a source. ``now`` in Unix seconds."""
        state = self._sources.setdefault(source, _SourcePods())
        changes = _Changes(source)
        malformed: list[str] = []
        pods: list[Pod] = []
        state.unknown, state.nameless = set(), False
        for obj in objects:
            if obj is NAMELESS:
                state.nameless = True
                continue
            try:
                pods.append(self._readable(state, changes, obj))
            except MalformedPod as error:
                state.unknown.add(object_uid(obj))
                malformed.append(_malformed(source, obj, error))
        self._merge_source(state, changes, pods, now)
        first, state.seen = not state.seen, True
        return changes.merged(first=first, malformed=malformed)

    def _merge_source(
        self, state: _SourcePods, changes: _Changes, pods: Iterable[Pod], now: float
    ) -> None:
        delivered: dict[str, Pod] = {}
        names: dict[str, list[str]] = {}
        for pod in pods:
            if pod.uid not in delivered:
                names.setdefault(pod.full_name, []).append(pod.uid)
            delivered[pod.uid] = pod
        hidden_before = _hidden(state.names)
        state.delivered, state.names = delivered, names
        state.unreadable = {u: why for u, why in state.unreadable.items() if u in delivered}
        for uid in [uid for uid in state.merged if uid not in _visible(names)]:
            changes.add(Op.REMOVE, state.merged.pop(uid))
        for uids in names.values():
            self._merge_one(state, changes, uids[0], now)
        for uid in sorted(_hidden(names) - hidden_before):
            changes.duplicate(delivered[uid])

    def apply_event(self, source: str, event_type: str, obj: api.Pod, now: float) -> MergedDelivery:
        """Take one change: ADDED, MODIFIED or DELETED, as a watch names them."""
        state = self._sources.setdefault(source, _SourcePods())
        changes = _Changes(source)
        uid = object_uid(obj)
        state.unknown.discard(uid)
        try:
            deleted = state.delivered.get(uid) if event_type == "DELETED" else None
            pod = deleted or self._readable(state, changes, obj)
        except MalformedPod as error:
            if event_type != "DELETED":
                state.unknown.add(uid)
            return MergedDelivery(malformed=(_malformed(source, obj, error),))
        known = state.delivered.get(pod.uid)
        alone = state.names.get(pod.full_name, [pod.uid]) == [pod.uid]
        if not alone or (known is not None and known.full_name != pod.full_name):
            pods = {uid: one for uid, one in state.delivered.items() if uid != pod.uid}
            if event_type != "DELETED":
                pods = {**state.delivered, pod.uid: pod}
            self._merge_source(state, changes, pods.values(), now)
        elif event_type == "DELETED":
            state.unreadable.pop(pod.uid, None)
            state.delivered.pop(pod.uid, None)
            state.names.pop(pod.full_name, None)
            if pod.uid in state.merged:
                changes.add(Op.REMOVE, state.merged.pop(pod.uid))
        else:
            state.delivered[pod.uid] = pod
            state.names[pod.full_name] = [pod.uid]
            self._merge_one(state, changes, pod.uid, now)
        return changes.merged(first=False)

    def elsewhere(self, obj: api.Pod) -> Mapping[str, object] | None:
        """Name, namespace and node of a pod that is not bound to this node; else None.

        An API that ignores the selector has the pods of all nodes: they must be left out.
        """
        spec = obj.get("spec") if isinstance(obj, Mapping) else None
        node = spec.get("nodeName") if isinstance(spec, dict) else self.node_name
        if not self.node_name or node == self.node_name:
            return None
        metadata = obj.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        return {"pod": known.get("name"), "namespace": known.get("namespace"), "node": node}

    def _readable(self, state: _SourcePods, changes: _Changes, obj: api.Pod) -> Pod:
        """The pod that an object stands for: if it can't be read, the pod as it was known.

        Raises MalformedPod for one that was not known.
        """
        if not self.claims_count:
            obj = without_claims(obj)
        if self.one_network:
            obj = _on_own_network(obj)
        uid = object_uid(obj)
        known = state.delivered.get(uid)
        try:
            pod = _checked(obj) if known is None else _checked_again(obj, known.object)
        except MalformedPod as error:
            if known is None:
                raise
            if state.unreadable.get(uid) != str(error):
                state.unreadable[uid] = str(error)
                changes.unreadable(known, str(error))
            return _with_deletion(known, obj)
        state.unreadable.pop(pod.uid, None)
        return pod

    def _merge_one(self, state: _SourcePods, changes: _Changes, uid: str, now: float) -> None:
        pod, existing = state.delivered[uid], state.merged.get(uid)
        if existing is None:
            seen = f"{format_micro_time(now)[:-1]}000Z"
            merged = _annotated(pod, changes.source, seen)
            changes.add(Op.ADD, merged)
        else:
            merged = _annotated(
                pod, changes.source, existing.annotations.get(CONFIG_SEEN, ""), existing
            )
            if (op := change(existing, merged)) is not None:
                changes.add(op, merged)
        state.merged[uid] = merged


def change(existing: Pod, new: Pod) -> Op | None:
    """The kind of change between two objects of one pod; None: none that matters."""
    old_meta, meta = existing.metadata, new.metadata
    differs = (
        existing.spec != new.spec
        or (old_meta.get("labels") or {}) != (meta.get("labels") or {})
        or old_meta.get("deletionTimestamp") != meta.get("deletionTimestamp")
        or old_meta.get("deletionGracePeriodSeconds") != meta.get("deletionGracePeriodSeconds")
        # a spec that was changed and then put back: the status shows the newest generation
        or existing.generation != new.generation
        or _foreign(existing.annotations) != _foreign(new.annotations)
    )
    if differs:
        return Op.DELETE if new.being_deleted else Op.UPDATE
    return Op.RECONCILE if existing.status != new.status else None


class _Changes(Component):
    """Collects the result of a delivery."""

    source: str

    def __post_init__(self) -> None:
        self._pods: dict[Op, list[Pod]] = {}
        self._refused: list[RefusedPod] = []

    def add(self, op: Op, pod: Pod) -> None:
        self._pods.setdefault(op, []).append(pod)

    def duplicate(self, pod: Pod) -> None:
        self._refuse(pod, f' due to duplicate pod name "{pod.name}", ignoring')

    def unreadable(self, pod: Pod, problem: str) -> None:
        self._refuse(pod, f": {problem}; the pod goes on as it was")

    def _refuse(self, pod: Pod, why: str) -> None:
        message = f"Error validating pod {pod.description} from {self.source}{why}"
        self._refused.append(RefusedPod(pod, message))

    def merged(self, *, first: bool, malformed: Iterable[str] = ()) -> MergedDelivery:
        operations = [
            PodOperation(op, self.source, tuple(self._pods[op]))
            for op in _ORDER
            if op in self._pods
        ]
        if first and not any(op in self._pods for op in (Op.ADD, Op.UPDATE, Op.DELETE)):
            operations.append(PodOperation(Op.ADD, self.source))
        if Op.RECONCILE in self._pods:
            operations.append(
                PodOperation(Op.RECONCILE, self.source, tuple(self._pods[Op.RECONCILE]))
            )
        return MergedDelivery(tuple(operations), tuple(self._refused), tuple(malformed))


def _visible(names: Mapping[str, list[str]]) -> set[str]:
    return {uids[0] for uids in names.values()}


def _hidden(names: Mapping[str, list[str]]) -> set[str]:
    return {uid for uids in names.values() for uid in uids[1:]}


def _foreign(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _LOCAL}


def _on_own_network(obj: api.Pod) -> api.Pod:
    """The object as if it had requested the network of the node."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("hostNetwork"):
        return obj
    return cast("api.Pod", {**obj, "spec": {**spec, "hostNetwork": True}})


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
    """The pod, if each of its fields has the type that it must have. Raises MalformedPod."""
    if problem := pod_problem(obj):
        raise MalformedPod(problem)
    return Pod(obj)


def _checked_again(obj: api.Pod, known: api.Pod) -> Pod:
    """Like :func:`_checked`, but reuses the parts of ``known`` that are equal.

    Checking a large spec costs several times as much as comparing it, and what compares it later
    finds the same object. Raises MalformedPod.
    """
    same = _equal_fields(obj, known)
    reported = obj.get("status")
    shared, checked = cast("api.Pod", {**obj, **same}), [*same.values()]
    if "status" not in same and isinstance(reported, dict):
        # a status changes in few of its fields: not the init containers', once they have ended
        fields = _equal_fields(reported, known.get("status") or {})
        shared["status"] = cast("api.PodStatus", {**reported, **fields})
        checked += fields.values()
    if problem := pod_problem(shared, checked):
        raise MalformedPod(problem)
    return Pod(shared)


def _equal_fields(obj: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``known`` with parts that ``obj`` has as well."""
    return {
        name: value
        for name, value in known.items()
        if isinstance(value, dict | list) and obj.get(name) == value
    }


def object_uid(obj: object) -> str:
    """The uid of an object that may not be a pod; empty: it has none."""
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) else ""


def _with_deletion(known: Pod, obj: api.Pod) -> Pod:
    """A known pod with an unreadable object's deletion fields, if that can be read."""
    fields = ("deletionTimestamp", "deletionGracePeriodSeconds")
    metadata: Mapping[str, object] = obj["metadata"]
    new = {field: metadata[field] for field in fields if field in metadata}
    deleted = {**known.object, "metadata": {**known.metadata, **new}}
    try:
        return _checked(deleted)  # type: ignore[arg-type]
    except MalformedPod:
        return known


def _malformed(source: str, obj: object, error: MalformedPod) -> str:
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    if isinstance(metadata, Mapping):
        name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        return f"pod {name} from {source}: {error}"
    return f"object from {source}: {error}"
