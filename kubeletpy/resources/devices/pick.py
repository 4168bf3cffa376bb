"""Decides which devices a container gets, near which NUMA nodes, and what it gets with them. Pure.

Source: docs/reference/behaviour-resources.md, ro, rp, rt. Numbers in comments are rows of ro.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import value
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import DeviceNode, Mount, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.resources.devices.model import (
    Booking,
    DeviceHolder,
    DeviceRequest,
    DeviceState,
    PluginDevice,
)
from kubeletpy.resources.placement.model import (
    Hint,
    left_by_init_containers,
    mask_of,
    masks,
    touching,
)

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb


class NothingToAllocate(Struct, frozen=True):
    """There is nothing to allocate; ``why`` is for messages."""

    why: str


class Unallocatable(Struct, frozen=True):
    """The container can't have what it requests."""

    message: str
    cause: Cause | None = None


class DeviceChoice(Struct, frozen=True):
    """The devices from which a container gets ``desired``.

    Attributes:
        taken: it gets these in any case: those of earlier init containers.
        aligned: free ones on the NUMA nodes that placement requests.
        unaligned: free ones on others.
        anywhere: free ones that are on none.
    """

    desired: int
    taken: frozenset[str]
    aligned: frozenset[str] = frozenset()
    unaligned: frozenset[str] = frozenset()
    anywhere: frozenset[str] = frozenset()

    @property
    def needed(self) -> int:
        """How many are still to be chosen."""
        return self.desired - len(self.taken)

    @property
    def preferred_request(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """The devices a plugin may choose from, and those it must include, if any."""
        if 0 < self.needed < len(self.aligned):  # 11
            return self.aligned | self.taken, self.taken
        if self.needed > len(self.aligned):  # 12
            free = self.aligned | self.unaligned | self.anywhere
            return free | self.taken, self.taken | self.aligned
        return None


def requests(container: api.Container, state: DeviceState) -> dict[str, int]:
    """Count the devices of each resource that a container requests: its limits, rounded up.

    Raises ValueError for an invalid quantity.
    """
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: value(text) for name, text in sorted(limits.items()) if state.concerns(name)}


def by_claim(pod: Pod, container: str, resource: str) -> bool:
    """Whether a claim, not a plugin, serves a resource for this container (1)."""
    status = pod.status.get("extendedResourceClaimStatus") or {}
    return any(
        each.get("containerName") == container and each.get("resourceName") == resource
        for each in status.get("requestMappings") or ()
    )


def reusable(pod: Pod, container: str, resource: str, state: DeviceState) -> frozenset[str]:
    """Return the devices of init containers that have ended when a container starts."""
    return left_by_init_containers(
        pod, container, lambda name: state.ids_of(DeviceHolder(pod.uid, name, resource))
    )


def decide(
    pod: Pod, request: DeviceRequest, state: DeviceState, *, pod_runs: bool = False
) -> NothingToAllocate | Unallocatable | DeviceChoice:
    """Decide which devices of one resource a container gets.

    Args:
        pod_runs: something of the pod runs: an earlier agent admitted it, and what it has is in
            use, whatever its plugin reports (or has not reported yet).
    """
    _, container, resource = request.holder
    desired, mask = request.number, request.mask
    if by_claim(pod, container, resource):
        return NothingToAllocate("a claim serves it")
    own = state.bookings.get(request.holder)
    if own is not None and len(own.ids) != desired:  # 2
        return Unallocatable(
            f'pod "{pod.uid}" container "{container}" changed request for resource "{resource}" '
            f"from {len(own.ids)} to {desired}"
        )
    if pod_runs:  # 3
        return NothingToAllocate("its pod runs already")
    known = state.resources.get(resource)
    if known is None:  # 4
        return Unallocatable(f"cannot allocate unregistered device {resource}")
    if not known.healthy:  # 5
        return Unallocatable(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}",
            Cause(CauseKind.DEVICES_UNHEALTHY, resource),
        )
    if own is not None and not own.ids <= known.healthy:  # 6
        return Unallocatable(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    if own is not None or desired <= 0:  # 7
        return NothingToAllocate("it has them" if own is not None else "it requests none")
    again = reusable(pod, container, resource, state) & known.healthy

    def is_far(each: str) -> bool:
        return mask is not None and not mask_of(known.listed[each].nodes) & mask

    taken = frozenset(sorted(again, key=lambda each: (is_far(each), each))[:desired])  # 8
    free = known.healthy - state.held_ids(resource)
    if len(free) < desired - len(taken):  # 9
        return Unallocatable(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {desired - len(taken)}, Available: {len(free)}",
            Cause(CauseKind.DEVICES_TAKEN, resource),
        )
    if mask is None:  # 10
        return DeviceChoice(desired, taken, anywhere=free)
    aligned: list[str] = []
    unaligned: list[str] = []
    anywhere: list[str] = []
    where: dict[tuple[int, ...], list[str]] = {(): anywhere}
    for each in free:
        nodes = known.listed[each].nodes
        if nodes not in where:
            where[nodes] = aligned if mask_of(nodes) & mask else unaligned
        where[nodes].append(each)
    return DeviceChoice(
        desired,
        taken,
        aligned=frozenset(aligned),
        unaligned=frozenset(unaligned),
        anywhere=frozenset(anywhere),
    )


def pick(choice: DeviceChoice, preferred: Collection[str] = ()) -> tuple[str, ...]:
    """Pick devices, ordered by id. ``preferred``: those that the plugin would take."""
    preference = frozenset(preferred)
    groups: tuple[frozenset[str], ...] = (preference & choice.aligned, choice.aligned)  # 11
    if choice.needed >= len(choice.aligned):  # 12
        others = preference & (choice.unaligned | choice.anywhere)
        groups = (choice.aligned, others, choice.unaligned, choice.anywhere)
    chosen = set(choice.taken)
    for group in groups:
        missing = choice.desired - len(chosen)
        if missing > 0:
            chosen.update(nsmallest(missing, group if group.isdisjoint(chosen) else group - chosen))
    return tuple(sorted(chosen))


# Hints for placement.


def device_hints(
    pod: Pod,
    container: str | None,
    requested: Mapping[str, int],
    state: DeviceState,
    nodes: Sequence[int],
) -> dict[str, Sequence[Hint] | None]:
    """Return the NUMA nodes near which devices could be allocated, by resource.

    None stands for no preference, and empty for impossible.

    Args:
        container: None: for all of the pod's containers at once.
        requested: how many of each resource; only those of plugins.
        nodes: ids of the machine's NUMA nodes.
    """
    found: dict[str, Sequence[Hint] | None] = {}
    for name, count in requested.items():
        resource = state.resources.get(name)
        if resource is None or not resource.has_topology:
            found[name] = None
            continue
        again = frozenset[str]()
        if container is None:
            own = state.of_pod(pod.uid).get(name, frozenset())
        else:
            booking = state.of_container(pod.uid, container).get(name)
            own = frozenset() if booking is None else booking.ids
            again = reusable(pod, container, name, state)
        if not own:
            free = resource.healthy - state.held_ids(name)
            found[name] = _masks(resource.listed, free, again, count, nodes)
        elif len(own) == count:
            found[name] = _masks(resource.listed, own, (), count, nodes)
        else:
            found[name] = ()
    return found


def _masks(
    listed: Mapping[str, PluginDevice],
    free: Collection[str],
    again: Collection[str],
    count: int,
    nodes: Sequence[int],
) -> list[Hint]:
    every = mask_of(nodes)
    there = _where(listed, listed, every)
    usable = _where(listed, free, every)
    kept = _where(listed, again, every)
    having = [node for node in nodes if any(mask >> node & 1 for mask in there)] or list(nodes)
    found: list[int] = []
    narrowest = len(having)
    near, near_usable = touching(there, having), touching(usable, having)
    reused = sum(kept.values())
    for number, mask in enumerate(masks(having)):
        if not mask:
            continue
        if near[number] >= count:
            narrowest = min(narrowest, mask.bit_count())
        if any(not at & mask for at in kept):
            continue  # what init containers had is taken in any case
        if near_usable[number] + reused >= count:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == narrowest) for mask in found]


def _where(listed: Mapping[str, PluginDevice], ids: Iterable[str], every: int) -> Counter[int]:
    """Count devices by the nodes that they are near; those near none do not count."""
    masks = (mask_of(listed[each].nodes) & every for each in ids if each in listed)
    return Counter(mask for mask in masks if mask)


# The additions to a container with devices.


class PluginAdditions(Struct, frozen=True):
    """The additions to one container's config with all its devices."""

    envs: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceNode, ...]
    annotations: Mapping[str, str]
    cdi_devices: tuple[str, ...]


def plugin_additions(bookings: Mapping[str, Booking]) -> PluginAdditions:
    """Merge the plugins' answers for a container's devices; the first of equal keys wins.

    Args:
        bookings: by resource, in the order of their names.

    Raises:
        ContainerConfigError: a plugin's answer can't be carried out.
    """
    envs: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    names: dict[str, None] = {}
    for resource, booking in bookings.items():
        response = _parsed(resource, booking.response)
        for name, text in sorted(response.envs.items()):
            _must_be_variable(resource, name, text)
            envs.setdefault(name, text)
        for key, text in sorted(response.annotations.items()):
            annotations.setdefault(key, text)
        for mount in response.mounts:
            path = _absolute(resource, "mount", mount.container_path)
            source = _absolute(resource, "mount", mount.host_path)
            mounts.setdefault(path, Mount(path, source, mount.read_only))
        for device in response.devices:
            path = _absolute(resource, "device", device.container_path)
            source = _absolute(resource, "device", device.host_path)
            devices.setdefault(path, DeviceNode(path, source, _permissions(resource, device)))
        names |= dict.fromkeys(device.name for device in response.cdi_devices)
    return PluginAdditions(
        tuple(envs.items()),
        tuple(mounts.values()),
        tuple(devices.values()),
        annotations,
        tuple(names),
    )


def _parsed(resource: str, response: bytes) -> pb.ContainerAllocateResponse:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

    try:
        return pb.ContainerAllocateResponse.FromString(response)
    except DecodeError:
        raise ContainerConfigError(
            f"what the device plugin of {resource} has answered can't be read"
        ) from None


def _must_be_variable(resource: str, name: str, text: str) -> None:
    if not name or "=" in name or "\0" in name + text:
        raise ContainerConfigError(
            f"device plugin of {resource}: {name[:80]!r} is no variable's name, or its value "
            "contains a zero byte"
        )


def _absolute(resource: str, what: str, path: str) -> str:
    if not posixpath.isabs(path) or "\0" in path:
        raise ContainerConfigError(
            f"device plugin of {resource}: the path of a {what} is not absolute: {path!r}"
        )
    return path


def _permissions(resource: str, device: pb.DeviceSpec) -> str:
    if set(device.permissions) <= set("rwm"):
        return device.permissions
    raise ContainerConfigError(
        f"device plugin of {resource}: permissions of device {device.container_path} are "
        f"{device.permissions!r}, not of the letters r, w and m"
    )
