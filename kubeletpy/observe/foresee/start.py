"""Predicts the start of a new pod: its volumes and images, and the acts in their order. Pure.

The order is that of the worker's steps and of the runtime sync (docs/reference/behaviour.md, c).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.images.policy import ImageAction, decide
from kubeletpy.images.reference import default_pull_policy
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.foresee import model as foresee
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.volumes.pod_volumes.planned import VolumePlan

_SOURCES = {
    "configMap": ("configMap", "name"),
    "secret": ("secret", "secretName"),
    "hostPath": ("host directory", "path"),
    "persistentVolumeClaim": ("claim", "claimName"),
    "csi": ("CSI driver", "driver"),
    "image": ("image", "reference"),
    "nfs": ("NFS server", "server"),
}


def images(
    pod: Pod, present: Mapping[str, bool | None], names: Collection[str]
) -> tuple[foresee.ImageUse, ...]:
    """Where the images of containers (by name) come from.

    ``present``: image -> whether the node has it; None: the runtime could not report it.
    """
    users: dict[tuple[str, str], list[str]] = {}
    for _, container in pod.all_containers():
        if container["name"] not in names:
            continue
        image = container.get("image") or ""
        policy = container.get("imagePullPolicy") or default_pull_policy(image)
        users.setdefault((image, policy), []).append(container["name"])
    found = []
    for (image, policy), of_it in users.items():
        there = present.get(image)
        action = decide(policy, present=bool(there))
        found.append(foresee.ImageUse(image, tuple(of_it), action, _why(policy, there)))
    return tuple(found)


def _why(policy: str, there: bool | None) -> str:
    if there is None:
        return f"the runtime did not report whether the node has it; imagePullPolicy is {policy}"
    has = "the node has it" if there else "the node does not have it"
    return f"{has}; imagePullPolicy is {policy}"


def volumes(plan: VolumePlan) -> tuple[foresee.ForeseenVolume, ...]:
    """The contents of the volumes that containers use."""
    found = [
        foresee.ForeseenVolume(name, "nothing", problem) for name, problem in plan.problems.items()
    ]
    found += [foresee.ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.volumes]
    found += [foresee.ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.claimed]
    return tuple(sorted(found, key=lambda use: use.name))


def _made_of(kind: str, source: Mapping[str, Any]) -> str:
    if kind == "projected":
        parts = [_projected(each) for each in source.get("sources") or ()]
        return ", ".join(parts) or "nothing"
    if kind == "ephemeral":
        return "a claim of its own"
    if kind == "emptyDir":
        return "an empty directory" + (" in memory" if source.get("medium") else "")
    word, field = _SOURCES.get(kind, (kind, ""))
    name = str(source.get(field) or "")
    return f"{word} {name}".strip()


def _projected(source: Mapping[str, Any]) -> str:
    for kind, value in source.items():
        if isinstance(value, Mapping):
            return f"{kind} {value.get('name') or ''}".strip()
    return "nothing"


def acts(
    pod: Pod,
    volume_uses: Sequence[foresee.ForeseenVolume],
    image_uses: Iterable[foresee.ImageUse],
    took: foresee.Durations,
) -> list[foresee.Act]:
    """All that a new pod takes, in order, with how long it took before."""
    pulls = {
        (image.image, name): image
        for image in image_uses
        if image.action == ImageAction.PULL
        for name in image.containers
    }
    pulled: set[str] = set()
    found: list[foresee.Act] = []
    if volume_uses:
        names = ", ".join(use.name for use in volume_uses)
        found.append(took.act(Step.VOLUMES, names, "containers mount them"))
    found.append(took.act(TraceCall.RUN_POD_SANDBOX, "", "the pod has no sandbox"))
    for kind, container in _in_order(pod):
        image = container.get("image") or ""
        use = pulls.get((image, container["name"]))
        if use is not None and (
            image not in pulled or container.get("imagePullPolicy") == "Always"
        ):
            found.append(took.act(TraceCall.PULL_IMAGE, image, use.why, like=image))
            pulled.add(image)
        found += _start(kind, container, took)
    return found


def _in_order(pod: Pod) -> Iterable[tuple[ContainerKind, api.Container]]:
    for container in pod.init_containers:
        yield ContainerKind.INIT, container
    for container in pod.containers:
        yield ContainerKind.REGULAR, container


def _start(
    kind: ContainerKind, container: api.Container, took: foresee.Durations
) -> list[foresee.Act]:
    name, why = container["name"], ""
    if kind is ContainerKind.INIT:
        until = "started" if is_sidecar(container) else "ended with 0"
        why = f"the next ones wait until it has {until}"
    return [
        took.act(TraceCall.CREATE_CONTAINER, name),
        took.act(TraceCall.START_CONTAINER, name, why),
    ]


def unsure(pod: Pod, image_uses: Sequence[foresee.ImageUse]) -> list[str]:
    """The acts and waits that the sum leaves out."""
    found = [
        f"container {name} never starts: {each.image} is not here, and imagePullPolicy is Never"
        for each in image_uses
        if each.action == ImageAction.REFUSE
        for name in each.containers
    ]
    if any(not is_sidecar(each) for each in pod.init_containers):
        found.append("how long the init containers run is not known")
    if any(each.get("readinessProbe") or each.get("startupProbe") for each in pod.containers):
        found.append("when its probes succeed, and so when it is Ready, is not known")
    if any(each.action == ImageAction.USE for each in image_uses) and pod.spec.get(
        "imagePullSecrets"
    ):
        found.append(
            "whether the pod may use an image that others pulled depends on its pull secrets"
        )
    return found


# The objects without which a new pod would be admitted, but not start.
#
# An optional reference is left out: its absence does not block the pod.

_ENV = (("configMapKeyRef", foresee.NeedKind.CONFIG_MAP), ("secretKeyRef", foresee.NeedKind.SECRET))
_ENV_FROM = (("configMapRef", foresee.NeedKind.CONFIG_MAP), ("secretRef", foresee.NeedKind.SECRET))
_VOLUMES = {
    "configMap": (foresee.NeedKind.CONFIG_MAP, "name"),
    "secret": (foresee.NeedKind.SECRET, "secretName"),
    "persistentVolumeClaim": (foresee.NeedKind.CLAIM, "claimName"),
}
_KINDS = {
    "ConfigMap": foresee.NeedKind.CONFIG_MAP,
    "Secret": foresee.NeedKind.SECRET,
    "PersistentVolumeClaim": foresee.NeedKind.CLAIM,
}
_NOTHING: Mapping[tuple[str, str], Collection[str]] = {}
_PROJECTED = {"configMap": foresee.NeedKind.CONFIG_MAP, "secret": foresee.NeedKind.SECRET}


def needs(pod: Pod, plan: VolumePlan) -> tuple[foresee.Need, ...]:
    """ConfigMaps, secrets and claims that the pod's volumes and environments refer to.

    Example: ``Need(CONFIG_MAP, "shop", ("volume conf", "container main"))``.
    """
    users: dict[tuple[foresee.NeedKind, str], dict[str, None]] = {}
    keys: dict[tuple[foresee.NeedKind, str], dict[str, None]] = {}
    for kind, name, user, required in (*_of_volumes(plan), *_of_environments(pod)):
        if name:
            users.setdefault((kind, name), {})[user] = None
            keys.setdefault((kind, name), {}).update(dict.fromkeys(required))
    found = [
        foresee.Need(kind, name, tuple(by), keys=tuple(keys[kind, name]))
        for (kind, name), by in users.items()
    ]
    return tuple(sorted(found, key=lambda need: (need.kind, need.name)))


def _of_volumes(plan: VolumePlan) -> Iterator[tuple[foresee.NeedKind, str, str, list[str]]]:
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


def _of_environments(pod: Pod) -> Iterator[tuple[foresee.NeedKind, str, str, list[str]]]:
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
    states: Mapping[tuple[str, str], foresee.NeedState],
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
        if need["kind"] == foresee.NeedKind.CLAIM and need["name"] in made:
            continue
        state, lacking = states.get(key, foresee.NeedState.NOT_CHECKED), list[str]()
        if (keys := objects.get(key)) is not None:
            lacking = [each for each in need.get("keys") or () if each not in keys]
            state = foresee.NeedState.LACKS_KEYS if lacking else foresee.NeedState.EXISTS
        needed.append({**need, "state": state.value, **({"lacking": lacking} if lacking else {})})
    found = {**answer, "needs": needed}
    if answer["outcome"] == foresee.ForeseenOutcome.RUNS and missing(needed):
        found["outcome"] = foresee.ForeseenOutcome.WAITS.value
    return found


def missing(needed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The needs (as JSON) that do not exist or lack a key, so that the pod waits for them."""
    return [
        each
        for each in needed
        if each["state"] in (foresee.NeedState.MISSING, foresee.NeedState.LACKS_KEYS)
    ]


def of_workload(
    answer: Mapping[str, Any], kind: str, replicas: int, *, served: bool
) -> dict[str, Any]:
    """The answer about one pod of a workload; ``served``: whether the API has that kind."""
    outcome = answer["outcome"]
    found = {**answer, "workload": {"kind": kind, "replicas": replicas, "outcome": outcome}}
    if not served:
        found["outcome"] = foresee.ForeseenOutcome.UNSERVED.value
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


# Which eviction thresholds a pod's requests would bring near.

_RESOURCES = {
    "memory.available": "memory",
    "allocatableMemory.available": "memory",
    "nodefs.available": "ephemeral-storage",
}


def squeezed(
    levels: Sequence[Mapping[str, Any]], needs: Mapping[str, int]
) -> tuple[foresee.Squeezed, ...]:
    """Thresholds of what a pod requests, with what is available now.

    Args:
        levels: as in the node's report of pressure (:class:`kubeletpy.node.eviction.report.Level`).
        needs: what the pod requests, in bytes.
    """
    found = []
    for level in levels:
        requested = needs.get(_RESOURCES.get(level["signal"], ""), 0)
        if requested:
            available, threshold = level["available"], level["threshold"]
            left = available - requested
            found.append(
                foresee.Squeezed(
                    level["signal"], available, requested, threshold, left, left < threshold
                )
            )
    return tuple(found)
