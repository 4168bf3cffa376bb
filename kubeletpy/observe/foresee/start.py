"""Predicts the start of a new pod: its images, volumes, needs, and acts in their order. Pure.

The order of acts is that of the worker's steps and of the runtime sync
(docs/reference/behaviour.md, c).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.images.policy import ImageAction, decide
from kubeletpy.images.reference import default_pull_policy
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.foresee import model
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
) -> tuple[model.ImageUse, ...]:
    """Return where the images of containers (by name) come from.

    ``present``: image -> whether the node has it; None if the runtime could not report it.
    """
    users: dict[tuple[str, str], list[str]] = {}
    for _, container in pod.all_containers():
        if container["name"] not in names:
            continue
        image = container.get("image") or ""
        policy = container.get("imagePullPolicy") or default_pull_policy(image)
        users.setdefault((image, policy), []).append(container["name"])
    found = []
    for (image, policy), containers in users.items():
        there = present.get(image)
        action = decide(policy, present=bool(there))
        found.append(model.ImageUse(image, tuple(containers), action, _why(policy, there)))
    return tuple(found)


def _why(policy: str, there: bool | None) -> str:
    if there is None:
        return f"the runtime did not report whether the node has it; imagePullPolicy is {policy}"
    has = "the node has it" if there else "the node does not have it"
    return f"{has}; imagePullPolicy is {policy}"


def volumes(plan: VolumePlan) -> tuple[model.ForeseenVolume, ...]:
    """Return the contents of the volumes that containers use."""
    found = [
        model.ForeseenVolume(name, "nothing", problem) for name, problem in plan.problems.items()
    ]
    found += [model.ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.volumes]
    found += [model.ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.claimed]
    return tuple(sorted(found, key=lambda use: use.name))


def _made_of(kind: str, source: Mapping[str, Any]) -> str:
    if kind == "projected":
        parts = [_projected(each) for each in source.get("sources") or ()]
        return ", ".join(parts) or "nothing"
    if kind == "ephemeral":
        return "a claim of its own"
    if kind == "emptyDir":
        return "an empty directory" + (" in memory" if source.get("medium") else "")
    noun, field = _SOURCES.get(kind, (kind, ""))
    name = str(source.get(field) or "")
    return f"{noun} {name}".strip()


def _projected(source: Mapping[str, Any]) -> str:
    for kind, value in source.items():
        if isinstance(value, Mapping):
            return f"{kind} {value.get('name') or ''}".strip()
    return "nothing"


def acts(
    pod: Pod,
    volume_uses: Sequence[model.ForeseenVolume],
    image_uses: Iterable[model.ImageUse],
    took: model.Durations,
) -> list[model.Act]:
    """Return the acts that start a new pod, in order, with how long they took before."""
    pulls = {
        (image.image, name): image
        for image in image_uses
        if image.action == ImageAction.PULL
        for name in image.containers
    }
    pulled: set[str] = set()
    found: list[model.Act] = []
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


def _start(kind: ContainerKind, container: api.Container, took: model.Durations) -> list[model.Act]:
    name, why = container["name"], ""
    if kind is ContainerKind.INIT:
        until = "started" if is_sidecar(container) else "ended with 0"
        why = f"the next ones wait until it has {until}"
    return [
        took.act(TraceCall.CREATE_CONTAINER, name),
        took.act(TraceCall.START_CONTAINER, name, why),
    ]


def unsure(pod: Pod, image_uses: Sequence[model.ImageUse]) -> list[str]:
    """Return the acts and waits that the sum of the times leaves out."""
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


# Needs: objects without which a new pod would be admitted, but not start. An optional reference is
# left out, since its absence does not block the pod.

_ENV = (("configMapKeyRef", model.NeedKind.CONFIG_MAP), ("secretKeyRef", model.NeedKind.SECRET))
_ENV_FROM = (("configMapRef", model.NeedKind.CONFIG_MAP), ("secretRef", model.NeedKind.SECRET))
_VOLUMES = {
    "configMap": (model.NeedKind.CONFIG_MAP, "name"),
    "secret": (model.NeedKind.SECRET, "secretName"),
    "persistentVolumeClaim": (model.NeedKind.CLAIM, "claimName"),
}
_KINDS = {
    "ConfigMap": model.NeedKind.CONFIG_MAP,
    "Secret": model.NeedKind.SECRET,
    "PersistentVolumeClaim": model.NeedKind.CLAIM,
}
_NO_OBJECTS: Mapping[tuple[str, str], Collection[str]] = {}
_PROJECTED = {"configMap": model.NeedKind.CONFIG_MAP, "secret": model.NeedKind.SECRET}


def needs(pod: Pod, plan: VolumePlan) -> tuple[model.Need, ...]:
    """Return the ConfigMaps, secrets and claims that the pod's volumes and environments refer to.

    Example: ``Need(CONFIG_MAP, "shop", ("volume conf", "container main"))``.
    """
    users: dict[tuple[model.NeedKind, str], dict[str, None]] = {}
    keys: dict[tuple[model.NeedKind, str], dict[str, None]] = {}
    for kind, name, user, required in (*_volume_references(plan), *_environment_references(pod)):
        if name:
            users.setdefault((kind, name), {})[user] = None
            keys.setdefault((kind, name), {}).update(dict.fromkeys(required))
    found = [
        model.Need(kind, name, tuple(by), keys=tuple(keys[kind, name]))
        for (kind, name), by in users.items()
    ]
    return tuple(sorted(found, key=lambda need: (need.kind, need.name)))


def _volume_references(plan: VolumePlan) -> Iterator[tuple[model.NeedKind, str, str, list[str]]]:
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
    """Return the keys that a volume contains; it contains all that exist if there are none."""
    return [str(each.get("key") or "") for each in source.get("items") or ()]


def _environment_references(pod: Pod) -> Iterator[tuple[model.NeedKind, str, str, list[str]]]:
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
    """Return the name in a reference, or None without a reference that is required."""
    if reference is None or reference.get("optional"):
        return None
    return str(reference.get(field) or "")


def settled(
    answer: Mapping[str, Any],
    states: Mapping[tuple[str, str], model.NeedState],
    made: Collection[str] = (),
    objects: Mapping[tuple[str, str], Collection[str]] = _NO_OBJECTS,
) -> dict[str, Any]:
    """Return the agent's answer about a new pod with the state of the objects that it needs.

    Args:
        answer: JSON of the socket.
        states: (kind, name) -> what the API has; objects that are not in it were not checked.
        made: claims that are made together with the pod, and so need not exist.
        objects: (kind, name) -> keys of the objects that are applied together with the pod.
    """
    needed = []
    for need in answer.get("needs") or ():
        key = need["kind"], need["name"]
        if need["kind"] == model.NeedKind.CLAIM and need["name"] in made:
            continue
        state, lacking = states.get(key, model.NeedState.NOT_CHECKED), list[str]()
        if (keys := objects.get(key)) is not None:
            lacking = [each for each in need.get("keys") or () if each not in keys]
            state = model.NeedState.LACKS_KEYS if lacking else model.NeedState.EXISTS
        needed.append({**need, "state": state.value, **({"lacking": lacking} if lacking else {})})
    found = {**answer, "needs": needed}
    if answer["outcome"] == model.ForeseenOutcome.RUNS and missing(needed):
        found["outcome"] = model.ForeseenOutcome.WAITS.value
    return found


def missing(needed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the needs (as JSON) that do not exist or lack a key: the pod would wait for them."""
    return [
        each
        for each in needed
        if each["state"] in (model.NeedState.MISSING, model.NeedState.LACKS_KEYS)
    ]


def of_workload(
    answer: Mapping[str, Any], kind: str, replicas: int, *, served: bool
) -> dict[str, Any]:
    """Return the answer about a workload; ``served``: whether the API has that kind."""
    outcome = answer["outcome"]
    found = {**answer, "workload": {"kind": kind, "replicas": replicas, "outcome": outcome}}
    if not served:
        found["outcome"] = model.ForeseenOutcome.UNSERVED.value
    return found


def applied_objects(
    documents: Iterable[Mapping[str, Any]], namespace: str
) -> dict[str, dict[tuple[str, str], frozenset[str]]]:
    """Return the objects of files that pods may need: namespace -> (kind, name) -> keys.

    ``namespace`` is that of objects that name none.
    """
    found: dict[str, dict[tuple[str, str], frozenset[str]]] = {}
    for each in documents:
        kind, metadata = _KINDS.get(str(each.get("kind"))), each.get("metadata")
        if kind is None or not isinstance(metadata, Mapping):
            continue
        parts = (each.get(field) for field in ("data", "stringData", "binaryData"))
        keys = {str(key) for part in parts if isinstance(part, Mapping) for key in part}
        objects = found.setdefault(str(metadata.get("namespace") or namespace), {})
        objects[kind.value, str(metadata.get("name"))] = frozenset(keys)
    return found


_RESOURCES = {
    "memory.available": "memory",
    "allocatableMemory.available": "memory",
    "nodefs.available": "ephemeral-storage",
}


def squeezed(
    levels: Sequence[Mapping[str, Any]], needs: Mapping[str, int]
) -> tuple[model.Squeezed, ...]:
    """Return the eviction thresholds that a pod's requests would bring near.

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
                model.Squeezed(
                    level["signal"], available, requested, threshold, left, left < threshold
                )
            )
    return tuple(found)
