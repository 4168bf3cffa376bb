"""The volumes of a pod to set up, and the objects that they and its environment need.

Pure: decided from the pod alone. Volumes that no container uses are ignored. Source:
docs/reference/behaviour.md, i1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.errors import NoAnswerYet
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.resolve import ClaimVolume

ObjectKind = Literal["configMap", "secret"]
OBJECT_KINDS: tuple[ObjectKind, ...] = ("configMap", "secret")

FILE_KINDS = frozenset({"configMap", "secret", "downwardAPI", "projected"})
"""Volumes whose files the agent writes and updates; containers only read them."""
SUPPORTED = FILE_KINDS | {"emptyDir", "hostPath", "image"}
MAX_REFERENCES = 1000
"""The most configMaps, secrets, tokens and certificates that one pod may refer to. Each costs
requests for as long as the pod lives; the kubelet has no limit. Real pods use some hundreds at
most.
"""


class ObjectRef(Struct, frozen=True):
    """A configMap or secret of the pod's namespace."""

    kind: ObjectKind
    name: str


class PlannedVolume(Struct, frozen=True):
    """One volume that containers use."""

    name: str
    kind: str
    """The field of its source: emptyDir, configMap, …"""
    source: Mapping[str, Any]
    propagated: bool = False
    """Whether a container needs to see mounts made below it later."""

    @property
    def read_only(self) -> bool:
        """Whether containers get it read-only regardless of their volumeMounts."""
        return self.kind in FILE_KINDS or self.kind == "image"

    @property
    def in_memory(self) -> bool:
        """Whether its files must never be written to a disk."""
        return self.kind in ("secret", "downwardAPI", "projected")


class VolumePlan(Struct, frozen=True):
    """The needs of one pod."""

    volumes: tuple[PlannedVolume, ...]
    problems: Mapping[str, str]
    """Volume name -> why it is unavailable on this node, as text for the user."""
    objects: frozenset[ObjectRef]
    """Sources of volumes: followed while the pod lives."""
    env_objects: frozenset[ObjectRef]
    """Sources of environments only: read when a container starts."""
    claimed: tuple[ClaimVolume, ...] = ()
    """Volumes that the agent does not make itself: of claims, drivers, disks and servers."""
    refused: str = ""
    """Why this node does not accept the pod, as text for the user; empty: it does."""


def plan_volumes(pod: Pod) -> VolumePlan:
    """The volumes and objects that a pod needs. Never raises, whatever the spec contains."""
    used, mounted, devices, propagated = _uses(pod)
    declared = {v.get("name"): v for v in pod.spec.get("volumes") or ()}
    volumes: list[PlannedVolume] = []
    claimed: list[ClaimVolume] = []
    problems: dict[str, str] = {}
    for name in used:
        if name not in declared:
            problems[name] = "no volume of this name in the pod's spec.volumes"
            continue
        kind, source = volume_source(cast(Mapping[str, Any], declared[name]))
        if kind not in SUPPORTED:
            claimed.append(ClaimVolume(name, kind, source, name in mounted, name in devices))
        elif name in devices:
            problems[name] = f"{kind} volumes are no block devices: volumeDevices needs a claim"
        else:
            volumes.append(PlannedVolume(name, kind, source, name in propagated))
    objects = frozenset(ref for volume in volumes for ref in volume_objects(volume))
    for_env = environment_objects(container for _, container in pod.all_containers())
    env_objects = frozenset(for_env) - objects
    requests = sum(_requests_of(volume) for volume in volumes)
    refused = _refusal(len(objects) + len(env_objects) + requests)
    return VolumePlan(tuple(volumes), problems, objects, env_objects, tuple(claimed), refused)


def _requests_of(volume: PlannedVolume) -> int:
    """How many tokens and certificates are requested for a volume."""
    if volume.kind != "projected":
        return 0
    sources = volume.source.get("sources") or ()
    kinds = ("serviceAccountToken", "podCertificate")
    return sum(any(source.get(kind) is not None for kind in kinds) for source in sources)


def _refusal(references: int) -> str:
    if references <= MAX_REFERENCES:
        return ""
    return (
        f"the pod refers to {references} configMaps, secrets, tokens and certificates, and "
        f"kubeletpy follows at most {MAX_REFERENCES} for one pod: join them into fewer objects, "
        "or split the pod"
    )


def volume_source(volume: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Kind and source of a volume; one without a source is an emptyDir."""
    for key, value in volume.items():
        if isinstance(value, Mapping):
            return key, value
    return "emptyDir", {}


def volume_objects(volume: PlannedVolume) -> Iterator[ObjectRef]:
    """The objects that a volume's files come from."""
    if volume.kind == "projected":
        for source in volume.source.get("sources") or ():
            for kind in OBJECT_KINDS:
                if source.get(kind) is not None:
                    yield ObjectRef(kind, source[kind].get("name") or "")
    elif volume.kind == "configMap":
        yield ObjectRef("configMap", volume.source.get("name") or "")
    elif volume.kind == "secret":
        yield ObjectRef("secret", volume.source.get("secretName") or "")


def environment_objects(containers: Iterable[api.Container]) -> Iterator[ObjectRef]:
    """The objects that environment variables of containers refer to."""
    for container in containers:
        for group in container.get("envFrom") or ():
            yield from _named("configMap", group.get("configMapRef"))
            yield from _named("secret", group.get("secretRef"))
        for entry in container.get("env") or ():
            origin = entry.get("valueFrom") or {}
            yield from _named("configMap", origin.get("configMapKeyRef"))
            yield from _named("secret", origin.get("secretKeyRef"))


def _named(kind: ObjectKind, reference: Any) -> Iterator[ObjectRef]:
    if reference is not None and reference.get("name"):
        yield ObjectRef(kind, reference["name"])


def _uses(pod: Pod) -> tuple[list[str], set[str], set[str], set[str]]:
    """Names of volumes that containers of any kind use, in order; those that they mount; those used
    as block devices; those mounted with propagation.
    """
    used: dict[str, None] = {}
    mounted: set[str] = set()
    devices: set[str] = set()
    propagated: set[str] = set()
    for _, container in pod.all_containers():
        for mount in container.get("volumeMounts") or ():
            name = mount.get("name") or ""
            used[name] = None
            mounted.add(name)
            if mount.get("mountPropagation") in ("HostToContainer", "Bidirectional"):
                propagated.add(name)
        for device in container.get("volumeDevices") or ():
            name = device.get("name") or ""
            used[name] = None
            devices.add(name)
        for entry in container.get("env") or ():
            file = (entry.get("valueFrom") or {}).get("fileKeyRef")
            if file is not None:
                used[file.get("volumeName") or ""] = None
    return list(used), mounted, devices, propagated


EVENT_AFTER_S = 10.0
"""Seconds without an answer before an event is sent."""


class Unanswered:
    """The volumes of one pod that only wait for the API's first answer.

    On a busy node the first answer about a config map may take longer than a reader waits for it
    (docs/reference/constants.csv: objects, watch first sync wait). The kubelet sends an event for
    each such volume that mounting has failed; a moment later the pod starts. This agent sends an
    event only after EVENT_AFTER_S without an answer; ``kubeletpy explain`` shows the wait at once.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seen(self, volumes: Collection[str], now: float) -> None:
        """Record that only these volumes wait now. ``now`` is in seconds, of any origin."""
        self._since = {name: self._since.get(name, now) for name in volumes}

    def is_event(self, volume: str, now: float) -> bool:
        """Whether the problem of a volume is to be an event."""
        since = self._since.get(volume)
        return since is None or now - since >= EVENT_AFTER_S


def waits_only(sources: Sequence[object]) -> bool:
    """Whether a volume waits only for answers of the API.

    Args:
        sources: the state of each source: an error, or None if it does not exist.
    """
    silent = [each for each in sources if isinstance(each, NoAnswerYet)]
    wrong = [each for each in sources if each is None or isinstance(each, Exception)]
    return bool(silent) and len(silent) == len(wrong)
