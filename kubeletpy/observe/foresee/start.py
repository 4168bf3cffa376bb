"""Predicts the start of a new pod: its volumes and images, and the acts in their order. Pure.

The order is that of the worker's steps and of the runtime sync (docs/reference/behaviour.md, c).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.images.policy import ImageAction, decide
from kubeletpy.images.reference import default_pull_policy
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.foresee.durations import Durations
from kubeletpy.observe.foresee.model import Act, ForeseenVolume, ImageUse
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.volumes.pod_volumes.plan import VolumePlan

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
) -> tuple[ImageUse, ...]:
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
        found.append(ImageUse(image, tuple(of_it), action, _why(policy, there)))
    return tuple(found)


def _why(policy: str, there: bool | None) -> str:
    if there is None:
        return f"the runtime did not report whether the node has it; imagePullPolicy is {policy}"
    has = "the node has it" if there else "the node does not have it"
    return f"{has}; imagePullPolicy is {policy}"


def volumes(plan: VolumePlan) -> tuple[ForeseenVolume, ...]:
    """The contents of the volumes that containers use."""
    found = [ForeseenVolume(name, "nothing", problem) for name, problem in plan.problems.items()]
    found += [ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.volumes]
    found += [ForeseenVolume(v.name, _made_of(v.kind, v.source)) for v in plan.claimed]
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
    pod: Pod, volume_uses: Sequence[ForeseenVolume], image_uses: Iterable[ImageUse], took: Durations
) -> list[Act]:
    """All that a new pod takes, in order, with how long it took before."""
    pulls = {
        (image.image, name): image
        for image in image_uses
        if image.action == ImageAction.PULL
        for name in image.containers
    }
    pulled: set[str] = set()
    found: list[Act] = []
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


def _start(kind: ContainerKind, container: api.Container, took: Durations) -> list[Act]:
    name, why = container["name"], ""
    if kind is ContainerKind.INIT:
        until = "started" if is_sidecar(container) else "ended with 0"
        why = f"the next ones wait until it has {until}"
    return [
        took.act(TraceCall.CREATE_CONTAINER, name),
        took.act(TraceCall.START_CONTAINER, name, why),
    ]


def unsure(pod: Pod, image_uses: Sequence[ImageUse]) -> list[str]:
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
