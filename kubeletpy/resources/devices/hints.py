"""Near which NUMA nodes a container could get its devices. Pure.

Source: docs/reference/behaviour-resources.md, rt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.devices.model import PluginDevice
from kubeletpy.resources.devices.pick import reusable
from kubeletpy.resources.devices.state import DeviceState
from kubeletpy.resources.placement.hints import Hint, mask_of
from kubeletpy.resources.placement.subsets import masks, touching


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
    near, near_usable, given = touching(there, having), touching(usable, having), sum(kept.values())
    for number, mask in enumerate(masks(having)):
        if not mask:
            continue
        if near[number] >= count:
            narrowest = min(narrowest, mask.bit_count())
        if any(not at & mask for at in kept):
            continue  # what init containers had is taken in any case
        if near_usable[number] + given >= count:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == narrowest) for mask in found]


def _where(listed: Mapping[str, PluginDevice], ids: Iterable[str], every: int) -> Counter[int]:
    """How many devices are near which nodes; those near none do not count."""
    masks = (mask_of(listed[each].nodes) & every for each in ids if each in listed)
    return Counter(mask for mask in masks if mask)
