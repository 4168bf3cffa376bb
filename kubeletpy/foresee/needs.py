"""The objects without which a new pod would be admitted, but not start. Pure.

An optional reference is left out: its absence does not block the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kubeletpy.foresee.model import ForeseenOutcome, Need, NeedKind, NeedState
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.pod_volumes.plan import VolumePlan

_ENV = (("configMapKeyRef", NeedKind.CONFIG_MAP), ("secretKeyRef", NeedKind.SECRET))
_ENV_FROM = (("configMapRef", NeedKind.CONFIG_MAP), ("secretRef", NeedKind.SECRET))
_VOLUMES = {
    "configMap": (NeedKind.CONFIG_MAP, "name"),
    "secret": (NeedKind.SECRET, "secretName"),
    "persistentVolumeClaim": (NeedKind.CLAIM, "claimName"),
}
_PROJECTED = {"configMap": NeedKind.CONFIG_MAP, "secret": NeedKind.SECRET}


def needs(pod: Pod, plan: VolumePlan) -> tuple[Need, ...]:
    """ConfigMaps, secrets and claims that the pod's volumes and environments refer to.

    Example: ``Need(CONFIG_MAP, "shop", ("volume conf", "container main"))``.
    """
    users: dict[tuple[NeedKind, str], dict[str, None]] = {}
    for kind, name, user in (*_of_volumes(plan), *_of_environments(pod)):
        if name:
            users.setdefault((kind, name), {})[user] = None
    found = [Need(kind, name, tuple(by)) for (kind, name), by in users.items()]
    return tuple(sorted(found, key=lambda need: (need.kind, need.name)))


def _of_volumes(plan: VolumePlan) -> Iterator[tuple[NeedKind, str, str]]:
    volumes = [(each.name, each.kind, each.source) for each in plan.volumes]
    volumes += [(each.name, each.kind, each.source) for each in plan.claimed]
    for volume, kind, source in volumes:
        user = f"volume {volume}"
        if kind == "projected":
            for part in source.get("sources") or ():
                for each, need in _PROJECTED.items():
                    if (name := _required(part.get(each), "name")) is not None:
                        yield need, name, user
        elif kind in _VOLUMES:
            need, field = _VOLUMES[kind]
            if (name := _required(source, field)) is not None:
                yield need, name, user


def _of_environments(pod: Pod) -> Iterator[tuple[NeedKind, str, str]]:
    for _, container in pod.all_containers():
        user = f"container {container['name']}"
        groups: list[tuple[Any, Any]] = [
            (each, _ENV_FROM) for each in container.get("envFrom") or ()
        ]
        groups += [(each.get("valueFrom") or {}, _ENV) for each in container.get("env") or ()]
        for group, fields in groups:
            for field, kind in fields:
                if (name := _required(group.get(field), "name")) is not None:
                    yield kind, name, user


def _required(reference: Mapping[str, Any] | None, field: str) -> str | None:
    """The name that a reference contains; None: there is no reference, or it is optional."""
    if reference is None or reference.get("optional"):
        return None
    return str(reference.get(field) or "")


def settled(
    answer: Mapping[str, Any],
    states: Mapping[tuple[str, str], NeedState],
    made: Collection[str] = (),
) -> dict[str, Any]:
    """The agent's answer about a new pod, with what an API has of the objects that it needs.

    Args:
        answer: JSON of the socket.
        states: (kind, name) -> what the API has; objects that are not in it were not checked.
        made: claims that are made together with the pod, and so need not exist.
    """
    needed = [
        {**need, "state": states.get((need["kind"], need["name"]), NeedState.NOT_CHECKED).value}
        for need in answer.get("needs") or ()
        if need["kind"] != NeedKind.CLAIM or need["name"] not in made
    ]
    found = {**answer, "needs": needed}
    if answer["outcome"] == ForeseenOutcome.RUNS and missing(needed):
        found["outcome"] = ForeseenOutcome.WAITS.value
    return found


def missing(needed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The needs (as JSON) that do not exist, so that the pod waits for them."""
    return [each for each in needed if each["state"] == NeedState.MISSING]
