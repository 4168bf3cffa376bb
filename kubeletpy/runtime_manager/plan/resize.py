"""Which containers run with other resources than they should have, and how to correct that.

Pure: desired resources come from the pod as it was allocated, those in effect from the records of
what containers were last given and from the runtime. Only requests and limits of cpu and memory can
be resized, and volumes in memory. Must never restart a container only because a record was lost.

Source: docs/reference/behaviour.md, c10; KEP-1287, KEP-5419 (pod-level resources), KEP-6030
(volumes in memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, parse, value
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import UNLIMITED, ContainerKind, Pod, is_sidecar
from kubeletpy.pods.resources import MIN_SHARES, same_size, size_limits
from kubeletpy.pods.runtime_status import ContainerStatus, Decision, PodRuntimeStatus
from kubeletpy.runtime_manager.config.resources import container_resources
from kubeletpy.runtime_manager.config.settings import RuntimeSettings

# Resources that can be resized, and the text of their changes


class ResizableResource(StrEnum):
    """A resource that can be resized; members are in the order of resizing."""

    MEMORY = "memory"
    CPU = "cpu"


RESOURCES = tuple(ResizableResource)
_WHICH = ("requests", "limits")


class Resizable(Struct, frozen=True):
    """Resizable requests and limits: millicores and bytes; 0: none."""

    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0

    def request_and_limit(self, resource: ResizableResource) -> tuple[int, int]:
        """(request, limit) of one resource."""
        if resource is ResizableResource.CPU:
            return self.cpu_request, self.cpu_limit
        return self.memory_request, self.memory_limit


def resizable(resources: api.ResourceRequirements | None) -> Resizable:
    """Return the resizable amounts. Raises ValueError for what is not a quantity."""
    requests, limits = _quantities(resources, "requests"), _quantities(resources, "limits")
    return Resizable(
        cpu_request=milli_value(requests.get("cpu", 0)),
        cpu_limit=milli_value(limits.get("cpu", 0)),
        memory_request=value(requests.get("memory", 0)),
        memory_limit=value(limits.get("memory", 0)),
    )


def effective_resources(pod: Pod, container: api.Container) -> api.ResourceRequirements:
    """A container's resources including the limits it has through its pod. Raises ValueError."""
    own = container.get("resources") or {}
    of_pod = _quantities(pod.spec.get("resources"), "limits")
    if not of_pod:
        return own
    limits = dict(_quantities(own, "limits"))
    for name in RESOURCES:
        if name in of_pod and not parse(limits.get(name, 0)):
            limits[name] = of_pod[name]
    return {**own, "limits": limits}


def merged(
    known: api.ResourceRequirements | None,
    desired: api.ResourceRequirements,
    resource: ResizableResource,
) -> api.ResourceRequirements:
    """A container's resources once one of them is as desired; the other one stays as recorded."""
    result: dict[str, Any] = {**desired}
    for which in _WHICH:
        new, old = _quantities(desired, which), _quantities(known, which)
        chosen = {name: text for name, text in new.items() if name not in RESOURCES}
        for name in RESOURCES:
            source = new if name is resource else old
            if name in source:
                chosen[name.value] = source[name]
        result[which] = chosen
    return result  # type: ignore[return-value]


def changes(known: api.ResourceRequirements, desired: api.ResourceRequirements) -> Iterator[str]:
    """Each difference as ``cpu limit 500m -> 1``. Raises ValueError."""
    have, want = resizable(known), resizable(desired)
    for resource in RESOURCES:
        for which, old, new in zip(
            _WHICH, have.request_and_limit(resource), want.request_and_limit(resource), strict=True
        ):
            if old != new:
                before = _quantities(known, which).get(resource, "none")
                after = _quantities(desired, which).get(resource, "none")
                yield f"{resource} {which.removesuffix('s')} {before} -> {after}"


def _quantities(resources: api.ResourceRequirements | None, which: str) -> Mapping[str, str]:
    everything: Mapping[str, Any] = resources or {}
    return everything.get(which) or {}


# Volumes in memory


class VolumeUpdate(Struct, frozen=True):
    """A volume that is to be remounted with another size."""

    name: str
    size: str
    """The quantity as in the spec."""
    bytes: int
    before: str = ""
    """The size that was last applied; empty: it is not known."""
    shrinks: bool = False


class VolumeResizePlan(Struct, frozen=True):
    """The changes to the sizes of a pod's volumes."""

    updates: tuple[VolumeUpdate, ...] = ()
    adopted: tuple[tuple[str, str], ...] = ()
    """Names and sizes to be recorded: nothing is recorded for the pod, so it was just mounted."""

    @property
    def shrinking(self) -> tuple[VolumeUpdate, ...]:
        """The updates that must come before memory limits are changed."""
        return tuple(each for each in self.updates if each.shrinks)

    @property
    def growing(self) -> tuple[VolumeUpdate, ...]:
        """The updates that must come after them; among these the sizes that are not known."""
        return tuple(each for each in self.updates if not each.shrinks)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions to resize volumes, as people read them."""
        return tuple(
            Decision(
                f"resize volume {each.name}", f"sizeLimit {each.before or 'unknown'} -> {each.size}"
            )
            for each in self.updates
        )


NO_VOLUMES = VolumeResizePlan()


def plan_volume_resizes(pod: Pod, known: Mapping[str, str], *, recorded: bool) -> VolumeResizePlan:
    """Compare the sizes of a pod's volumes in memory, as allocated, with those last applied.

    The mounted size does not count: a volume is mounted no larger than the memory limit of its pod.
    ``recorded`` is whether anything is recorded for the pod. If nothing is, its volumes have just
    been mounted with the sizes that it should have.
    """
    limits = size_limits(pod)
    if not recorded:
        return VolumeResizePlan(adopted=tuple(limits.items())) if limits else NO_VOLUMES
    updates = []
    for name, limit in limits.items():
        before = known.get(name, "")
        if same_size(before, limit):
            continue
        try:
            size = value(limit)
            shrinks = bool(before) and size < value(before)
        except ValueError:  # what is not a quantity was refused when it was to be mounted
            continue
        updates.append(VolumeUpdate(name, limit, size, before, shrinks))
    return VolumeResizePlan(tuple(updates))


# The plan of a resize

UNKNOWN = "it is not known what it was given"


class InEffect(Struct, frozen=True):
    """The resources that a pod and its containers are known to have."""

    containers: Mapping[str, api.ResourceRequirements] = field(default_factory=dict)
    """Container name -> its resources; containers without a record are missing."""
    pod_level: api.ResourceRequirements | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Sizes of volumes in memory, by name; used only where these are resized."""
    pod_limits_differ: str = ""
    """How the pod's own cgroup differs from what it should have, if that was checked."""
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)


class ContainerUpdate(Struct, frozen=True):
    """One resource of one running container, to be changed in place."""

    id: str
    kind: ContainerKind
    container: api.Container
    resource: ResizableResource
    desired: api.ResourceRequirements
    lowers: bool
    new_memory_limit: int = 0
    """Bytes, if a memory limit is lowered or added: it must be above what is in use."""

    @property
    def name(self) -> str:
        """Name of the container in its pod."""
        return self.container["name"]


class ContainerResize(Struct, frozen=True):
    """The resize of one running container."""

    name: str
    why: str = ""
    """The changes as text."""
    restart: bool = False
    """Its resizePolicy requires a restart: it is stopped and started with its new resources."""
    updates: tuple[ContainerUpdate, ...] = ()
    adopted: api.ResourceRequirements | None = None
    """Nothing to do: the runtime reports these, only the record is missing."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """For people: what is done, and why."""
        if self.restart:
            return (Decision(f"restart container {self.name} with new resources", self.why),)
        return (Decision(f"resize container {self.name}", self.why),) if self.updates else ()


class ResizePlan(Struct, frozen=True):
    """The changes to make in place in one sync."""

    memory: tuple[ContainerUpdate, ...] = ()
    cpu: tuple[ContainerUpdate, ...] = ()
    """In both, what is lowered comes first, so that there is room for what is raised."""
    pod: str = ""
    """Why the pod's own limits must be corrected even if no container is updated."""
    pod_level: api.ResourceRequirements | None = None
    """The resources of the pod as a whole, to be recorded once they are in effect."""
    adopted: tuple[tuple[str, api.ResourceRequirements], ...] = ()
    volumes: VolumeResizePlan = NO_VOLUMES

    @property
    def empty(self) -> bool:
        """Whether there is nothing to change."""
        return not (self.memory or self.cpu or self.pod or self.volumes.updates)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The changes to the pod as a whole, for people."""
        of_pod = (Decision("set the limits of the pod", self.pod),) if self.pod else ()
        return (*of_pod, *self.volumes.decisions)

    def updates(self, resource: ResizableResource) -> tuple[ContainerUpdate, ...]:
        """The updates of one resource, in order."""
        return self.memory if resource is ResizableResource.MEMORY else self.cpu


NOTHING = ResizePlan()


def judge_container(
    pod: Pod,
    container: api.Container,
    kind: ContainerKind,
    record: ContainerStatus,
    in_effect: InEffect,
) -> ContainerResize | None:
    """The resize that a running container needs; None: it needs none.

    A container without a record is compared with what the runtime reports for it. If the runtime
    reports nothing, everything is set again, without a restart.
    """
    name = container["name"]
    known = in_effect.containers.get(name)
    try:
        desired = effective_resources(pod, container)
        if desired == known:  # nearly always, and no quantity need be parsed
            return None
        want, have = resizable(desired), resizable(known)
        if want == have:
            return None
        reported = _runtime_has_it(pod, container, kind, record, in_effect.settings)
        why = UNKNOWN if known is None else ", ".join(changes(known, desired))
    except ValueError:  # what is not a quantity was refused when the container was to start
        return None
    if reported and (known is None or want.memory_request == have.memory_request):
        return ContainerResize(name, adopted=desired)
    changed = [
        resource
        for resource in RESOURCES
        if want.request_and_limit(resource) != have.request_and_limit(resource)
    ]
    lost = known is None and reported is None
    restartable = kind is ContainerKind.REGULAR or is_sidecar(container)
    if restartable and not lost and any(_requires_restart(container, each) for each in changed):
        return ContainerResize(name, why, restart=True)
    updates = []
    for resource in changed:
        lowers, limit = _lowers(want.request_and_limit(resource), have.request_and_limit(resource))
        new_memory = limit if resource is ResizableResource.MEMORY else 0
        updates.append(
            ContainerUpdate(record.id, kind, container, resource, desired, lowers, new_memory)
        )
    return ContainerResize(name, why, updates=tuple(updates))


def plan_resize(
    pod: Pod,
    resizes: Iterable[ContainerResize],
    starts: Iterable[api.Container],
    in_effect: InEffect,
) -> ResizePlan:
    """Combine what containers need and what the pod as a whole needs.

    ``starts`` are containers that this sync starts: one with other resources than it last ran with
    also changes what its pod should have.
    """
    lists: dict[ResizableResource, list[ContainerUpdate]] = {resource: [] for resource in RESOURCES}
    adopted = []
    for resize in resizes:
        if resize.adopted is not None:
            adopted.append((resize.name, resize.adopted))
        for update in resize.updates:
            there = lists[update.resource]
            there.insert(0 if update.lowers else len(there), update)
    reasons = []
    if changed := [c["name"] for c in starts if _starts_resized(pod, c, in_effect)]:
        reasons.append(f"{', '.join(changed)} starts with other resources than before")
    pod_level = _pod_level_change(pod, in_effect)
    if pod_level is not None and in_effect.pod_level is not None:
        reasons.append("the resources of the pod as a whole have changed")
    if in_effect.pod_limits_differ:
        reasons.append(in_effect.pod_limits_differ)
    return ResizePlan(
        memory=tuple(lists[ResizableResource.MEMORY]),
        cpu=tuple(lists[ResizableResource.CPU]),
        pod="; ".join(reasons),
        pod_level=pod_level,
        adopted=tuple(adopted),
        volumes=_volumes(pod, in_effect),
    )


def resize_in_progress(pod: Pod, status: PodRuntimeStatus, in_effect: InEffect) -> bool:
    """Whether anything of a pod runs with other resources than those allocated to it.

    Containers that don't run get their resources when they start; init containers that are not
    sidecars end soon, and do not count.
    """
    for kind, container in pod.all_containers():
        record = status.newest(container["name"])
        if record is None or not record.running or kind is ContainerKind.EPHEMERAL:
            continue
        if kind is ContainerKind.INIT and not is_sidecar(container):
            continue
        needed = judge_container(pod, container, kind, record, in_effect)
        if needed is not None and needed.adopted is None:
            return True
    if in_effect.pod_limits_differ or any(each.before for each in _volumes(pod, in_effect).updates):
        return True
    return in_effect.pod_level is not None and _pod_level_change(pod, in_effect) is not None


def _volumes(pod: Pod, in_effect: InEffect) -> VolumeResizePlan:
    if not in_effect.settings.resizes_memory_volumes:
        return NO_VOLUMES
    recorded = bool(in_effect.containers or in_effect.pod_level or in_effect.volumes)
    return plan_volume_resizes(pod, in_effect.volumes, recorded=recorded)


def _pod_level_change(pod: Pod, in_effect: InEffect) -> api.ResourceRequirements | None:
    desired = pod.spec.get("resources")
    if not desired:
        return None
    try:
        same = in_effect.pod_level and resizable(desired) == resizable(in_effect.pod_level)
    except ValueError:
        return None
    return None if same else desired


def _starts_resized(pod: Pod, container: api.Container, in_effect: InEffect) -> bool:
    known = in_effect.containers.get(container["name"])
    if known is None:
        return False
    try:
        desired = effective_resources(pod, container)
        return resizable(known) != resizable(desired)
    except ValueError:
        return False


def _runtime_has_it(
    pod: Pod,
    container: api.Container,
    kind: ContainerKind,
    record: ContainerStatus,
    settings: RuntimeSettings,
) -> bool | None:
    """Whether the runtime reports the desired limits of a container; None: it reports none."""
    reported = record.resources
    if reported is None or not (
        reported.cpu_shares or reported.cpu_quota or reported.memory_limit_bytes
    ):
        return None
    desired = container_resources(pod, container, kind, settings)
    return (
        max(reported.cpu_shares or MIN_SHARES, MIN_SHARES) == desired.cpu_shares
        and max(reported.cpu_quota or UNLIMITED, 0) == desired.cpu_quota
        and max(reported.memory_limit_bytes or UNLIMITED, 0) == desired.memory_limit_in_bytes
    )


def _requires_restart(container: api.Container, resource: ResizableResource) -> bool:
    for policy in container.get("resizePolicy") or ():
        if policy.get("resourceName") == resource:
            return policy.get("restartPolicy") == "RestartContainer"
    return False


def _lowers(want: tuple[int, int], have: tuple[int, int]) -> tuple[bool, int]:
    """Whether (request, limit) goes down, and to which limit if the limit does.

    If the limit changes, it decides, and no limit is more than any.
    """
    (new_request, new_limit), (old_request, old_limit) = want, have
    if new_limit == old_limit:
        return new_request < old_request, 0
    down = new_limit != 0 and (old_limit == 0 or new_limit < old_limit)
    return down, new_limit if down else 0
