"""The objects without which a new pod would be admitted, but not start. Pure.

An optional reference is left out: its absence does not block the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kubeletpy.observe.foresee.model import ForeseenOutcome, Need, NeedKind, NeedState
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.pod_volumes.plan import VolumePlan

_ENV = (("configMapKeyRef", NeedKind.CONFIG_MAP), ("secretKeyRef", NeedKind.SECRET))
_ENV_FROM = (("configMapRef", NeedKind.CONFIG_MAP), ("secretRef", NeedKind.SECRET))
_VOLUMES = {
    "configMap": (NeedKind.CONFIG_MAP, "name"),
    "secret": (NeedKind.SECRET, "secretName"),
    "persistentVolumeClaim": (NeedKind.CLAIM, "claimName"),
}
_KINDS = {
    "ConfigMap": NeedKind.CONFIG_MAP,
    "Secret": NeedKind.SECRET,
    "PersistentVolumeClaim": NeedKind.CLAIM,
}
_NOTHING: Mapping[tuple[str, str], Collection[str]] = {}
_PROJECTED = {"configMap": NeedKind.CONFIG_MAP, "secret": NeedKind.SECRET}


def needs(pod: Pod, plan: VolumePlan) -> tuple[Need, ...]:
    """ConfigMaps, secrets and claims that the pod's volumes and environments refer to.

    Example: ``Need(CONFIG_MAP, "shop", ("volume conf", "container main"))``.
    """
    users: dict[tuple[NeedKind, str], dict[str, None]] = {}
    keys: dict[tuple[NeedKind, str], dict[str, None]] = {}
    for kind, name, user, required in (*_of_volumes(plan), *_of_environments(pod)):
        if name:
            users.setdefault((kind, name), {})[user] = None
            keys.setdefault((kind, name), {}).update(dict.fromkeys(required))
    found = [
        Need(kind, name, tuple(by), keys=tuple(keys[kind, name]))
        for (kind, name), by in users.items()
    ]
    return tuple(sorted(found, key=lambda need: (need.kind, need.name)))


def _of_volumes(plan: VolumePlan) -> Iterator[tuple[NeedKind, str, str, list[str]]]:
    volumes = [(each.name, each.kind, each.source) for each in plan.volumes]
    volumes += [(each.name, each.kind, each.source) for each in plan.claimed]
    for volume, kind, source in volumes:
        user = f"volume {volume}"
        if kind == "projected":
            for part in source.get("sources") or ():
                for each, need in _PROJECTED.items():
                    if (name := _required(part.get(each), "name")) is not None:
                        yield need, name, user, _item_keys(part[each])
        elif kind in _VOLUMES:
            need, field = _VOLUMES[kind]
            if (name := _required(source, field)) is not None:
                yield need, name, user, _item_keys(source)


def _item_keys(source: Mapping[str, Any]) -> list[str]:
    """The keys that a volume shows; all that exist if none is named."""
    return [str(each.get("key") or "") for each in source.get("items") or ()]


def _of_environments(pod: Pod) -> Iterator[tuple[NeedKind, str, str, list[str]]]:
    for _, container in pod.all_containers():
        user = f"container {container['name']}"
        groups: list[tuple[Any, Any]] = [
            (each, _ENV_FROM) for each in container.get("envFrom") or ()
        ]
        groups += [(each.get("valueFrom") or {}, _ENV) for each in container.get("env") or ()]
        for group, fields in groups:
            for field, kind in fields:
                if (name := _required(reference := group.get(field), "name")) is not None:
                    key = reference.get("key")
                    yield kind, name, user, [str(key)] if key else []


def _required(reference: Mapping[str, Any] | None, field: str) -> str | None:
    """The name that a reference contains; None: there is no reference, or it is optional."""
    if reference is None or reference.get("optional"):
        return None
    return str(reference.get(field) or "")


def settled(
    answer: Mapping[str, Any],
    states: Mapping[tuple[str, str], NeedState],
    made: Collection[str] = (),
    objects: Mapping[tuple[str, str], Collection[str]] = _NOTHING,
) -> dict[str, Any]:
    """The agent's answer about a new pod, with what an API has of the objects that it needs.

    Args:
        answer: JSON of the socket.
        states: (kind, name) -> what the API has; objects that are not in it were not checked.
        made: claims that are made together with the pod, and so need not exist.
        objects: (kind, name) -> keys of the objects that are applied together with the pod.
    """
    needed = []
    for need in answer.get("needs") or ():
        key = need["kind"], need["name"]
        if need["kind"] == NeedKind.CLAIM and need["name"] in made:
            continue
        state, lacking = states.get(key, NeedState.NOT_CHECKED), list[str]()
        if (keys := objects.get(key)) is not None:
            lacking = [each for each in need.get("keys") or () if each not in keys]
            state = NeedState.LACKS_KEYS if lacking else NeedState.EXISTS
        needed.append({**need, "state": state.value, **({"lacking": lacking} if lacking else {})})
    found = {**answer, "needs": needed}
    if answer["outcome"] == ForeseenOutcome.RUNS and missing(needed):
        found["outcome"] = ForeseenOutcome.WAITS.value
    return found


def missing(needed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The needs (as JSON) that do not exist or lack a key, so that the pod waits for them."""
    return [each for each in needed if each["state"] in (NeedState.MISSING, NeedState.LACKS_KEYS)]


def of_workload(
    answer: Mapping[str, Any], kind: str, replicas: int, *, served: bool
) -> dict[str, Any]:
    """The answer about one pod of a workload; ``served``: whether the API has that kind."""
    outcome = answer["outcome"]
    found = {**answer, "workload": {"kind": kind, "replicas": replicas, "outcome": outcome}}
    if not served:
        found["outcome"] = ForeseenOutcome.UNSERVED.value
    return found


def applied_objects(
    documents: Iterable[Mapping[str, Any]], namespace: str
) -> dict[str, dict[tuple[str, str], frozenset[str]]]:
    """The objects in a user's files that pods may need: namespace -> (kind, name) -> keys.

    ``namespace``: of objects that name none.
    """
    found: dict[str, dict[tuple[str, str], frozenset[str]]] = {}
    for each in documents:
        kind, metadata = _KINDS.get(str(each.get("kind"))), each.get("metadata")
        if kind is None or not isinstance(metadata, Mapping):
            continue
        parts = (each.get(field) for field in ("data", "stringData", "binaryData"))
        keys = {str(key) for part in parts if isinstance(part, Mapping) for key in part}
        of_namespace = found.setdefault(str(metadata.get("namespace") or namespace), {})
        of_namespace[kind.value, str(metadata.get("name"))] = frozenset(keys)
    return found
