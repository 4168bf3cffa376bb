"""Merges what was read with what the runtime reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import replace
from kubeletpy.node.stats.from_cri import CriContainer, CriStats
from kubeletpy.node.stats.usage import CgroupUsage, FsSpace, GroupStats, PodReading, TreeUse, filled


def mount_points(said: CriStats) -> set[str]:
    """Mount points of the file systems of writable layers."""
    layers = (each.layer for each in said.containers.values())
    return {layer.mountpoint for layer in layers if layer is not None and layer.mountpoint}


def completed(
    pod: PodReading, said: CriStats, spaces: Mapping[str, FsSpace], *, prefer_runtime: bool
) -> PodReading:
    """A pod completed with the runtime's numbers.

    Args:
        pod: as it was read.
        said: what the runtime reported.
        spaces: file systems by mount point.
        prefer_runtime: the runtime's numbers take precedence over what was read; else the reverse.
    """

    def joined(ours: GroupStats | None, theirs: GroupStats | None) -> GroupStats | None:
        return filled(theirs, ours) if prefer_runtime else filled(ours, theirs)

    def container(group: CgroupUsage) -> CgroupUsage:
        reported = said.containers.get(group.id)
        if reported is None:
            return group
        return replace(
            group, stats=joined(group.stats, reported.stats), layer=_layer(reported, spaces)
        )

    done = replace(pod, containers=tuple(container(group) for group in pod.containers))
    sandbox = said.sandboxes.get(pod.sandbox.id) if pod.sandbox is not None else None
    if sandbox is None:
        return done
    network = sandbox.network or pod.network if prefer_runtime else pod.network or sandbox.network
    return replace(
        done,
        group=replace(pod.group, stats=joined(pod.group.stats, sandbox.stats)),
        network=network,
        processes=sandbox.processes if pod.processes is None else pod.processes,
    )


def _layer(reported: CriContainer, spaces: Mapping[str, FsSpace]) -> TreeUse | None:
    layer = reported.layer
    if layer is None:
        return None
    space = spaces.get(layer.mountpoint)
    return TreeUse(layer.at, layer.used, layer.inodes, space, uncounted=layer.uncounted)
