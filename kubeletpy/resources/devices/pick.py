"""Which devices a container gets, or why it gets none. Pure.

Source: docs/reference/behaviour-resources.md, ro; the numbers are its rows.
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
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import DeviceNode, Mount, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.resources.devices.model import Booking, DeviceHolder, DeviceState, PluginDevice, Wish
from kubeletpy.resources.placement.hints import (
    Hint,
    left_by_init_containers,
    mask_of,
    masks,
    touching,
)

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb


class Nothing(Struct, frozen=True):
    """There is nothing to allocate; ``why`` is for people."""

    why: str


class No(Struct, frozen=True):
    """The container can't have what it requests."""

    message: str


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
        """The devices a plugin may choose from, and those it must include; None: there is no
        choice."""
        if 0 < self.needed < len(self.aligned):  # 11
            return self.aligned | self.taken, self.taken
        if self.needed > len(self.aligned):  # 12
            free = self.aligned | self.unaligned | self.anywhere
            return free | self.taken, self.taken | self.aligned
        return None


def requests(container: api.Container, state: DeviceState) -> dict[str, int]:
    """How many devices of each resource a container requests: its limits, rounded up.

    Raises ValueError for what is not a quantity.
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
    """Devices of init containers that have ended when a container starts, free to be reused."""
    return left_by_init_containers(
        pod, container, lambda name: state.ids_of(DeviceHolder(pod.uid, name, resource))
    )


def decide(
    pod: Pod, wish: Wish, state: DeviceState, *, pod_runs: bool = False
) -> Nothing | No | DeviceChoice:
    """Decide which devices of one resource a container gets.

    Args:
        pod_runs: something of the pod runs: an earlier agent admitted it, and what it has is in
            use, whatever its plugin reports (or has not reported yet).
    """
    _, container, resource = wish.holder
    desired, mask = wish.number, wish.mask
    if by_claim(pod, container, resource):
        return Nothing("a claim serves it")
    own = state.bookings.get(wish.holder)
    if own is not None and len(own.ids) != desired:  # 2
        return No(
            f'pod "{pod.uid}" container "{container}" changed request for resource "{resource}" '
            f"from {len(own.ids)} to {desired}"
        )
    if pod_runs:  # 3
        return Nothing("its pod runs already")
    known = state.resources.get(resource)
    if known is None:  # 4
        return No(f"cannot allocate unregistered device {resource}")
    if not known.healthy:  # 5
        return No(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if own is not None and not own.ids <= known.healthy:  # 6
        return No(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    if own is not None or desired <= 0:  # 7
        return Nothing("it has them" if own is not None else "it requests none")
    again = reusable(pod, container, resource, state) & known.healthy

    def is_far(each: str) -> bool:
        return mask is not None and not mask_of(known.listed[each].nodes) & mask

    taken = frozenset(sorted(again, key=lambda each: (is_far(each), each))[:desired])  # 8
    free = known.healthy - state.held_ids(resource)
    if len(free) < desired - len(taken):  # 9
        return No(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {desired - len(taken)}, Available: {len(free)}"
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
    """The devices, ordered by id. ``preferred``: what the plugin would take."""
    wish = frozenset(preferred)
    groups: tuple[frozenset[str], ...] = (wish & choice.aligned, choice.aligned)  # 11
    if choice.needed >= len(choice.aligned):  # 12
        liked = (wish & choice.unaligned) | (wish & choice.anywhere)
        groups = (choice.aligned, liked, choice.unaligned, choice.anywhere)
    chosen = set(choice.taken)
    for group in groups:
        missing = choice.desired - len(chosen)
        if missing > 0:
            chosen.update(nsmallest(missing, group if group.isdisjoint(chosen) else group - chosen))
    return tuple(sorted(chosen))


# Near which NUMA nodes a container could get its devices.
#
# Source: docs/reference/behaviour-resources.md, rt.


def device_hints(
    pod: Pod,
    container: str | None,
    requested: Mapping[str, int],
    state: DeviceState,
    nodes: Sequence[int],
) -> dict[str, Sequence[Hint] | None]:
    """Hints by resource; None for no preference, empty for impossible.

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
    near, near_usable, supplied = (
        touching(there, having),
        touching(usable, having),
        sum(kept.values()),
    )
    for number, mask in enumerate(masks(having)):
        if not mask:
            continue
        if near[number] >= count:
            narrowest = min(narrowest, mask.bit_count())
        if any(not at & mask for at in kept):
            continue  # what init containers had is taken in any case
        if near_usable[number] + supplied >= count:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == narrowest) for mask in found]


def _where(listed: Mapping[str, PluginDevice], ids: Iterable[str], every: int) -> Counter[int]:
    """How many devices are near which nodes; those near none do not count."""
    masks = (mask_of(listed[each].nodes) & every for each in ids if each in listed)
    return Counter(mask for mask in masks if mask)


# Merges plugins' answers into the additions that a container gets with its devices.
#
# Source: docs/reference/behaviour-resources.md, rp.


class FromPlugins(Struct, frozen=True):
    """The additions to one container's config from all its devices."""

    envs: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceNode, ...]
    annotations: Mapping[str, str]
    cdi_devices: tuple[str, ...]


def from_plugins(bookings: Mapping[str, Booking]) -> FromPlugins:
    """The additions from a container's devices; the first of equal keys wins.

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
    return FromPlugins(
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
