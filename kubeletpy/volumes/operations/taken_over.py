"""The state of volumes left by a previous agent. Pure.

Nothing found is certain: the other agent may have been killed at any instant. Source:
docs/reference/behaviour-storage.md, sn1.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.on_disk import Found, PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.operations.model import PodMount, Presence, Volume


def taken_over(actual: Mapping[str, Volume], plugin: str, found: Found) -> dict[str, Volume]:
    """All known volumes, with those that one plugin has found."""
    there = dict(actual)
    for left in found.published:
        volume = there.get(left.unique_name) or Volume(left.unique_name, plugin)
        pods = {**volume.pods, left.pod_uid: PodMount(left, Presence.UNCERTAIN, found=True)}
        there[left.unique_name] = replace(volume, pods=pods)
    for staged in found.staged:
        volume = there.get(staged.unique_name) or Volume(staged.unique_name, plugin)
        there[staged.unique_name] = replace(
            volume, device=Presence.UNCERTAIN, staged=staged, device_found=True
        )
    return there


def recognised(
    actual: Mapping[str, Volume], mount: PublishedOnDisk, staged: StagedOnDisk
) -> dict[str, Volume]:
    """All known volumes, when a pod needs the volume that has, or will have, these paths.

    An agent that died before it had recorded which volume it was about to publish or stage leaves
    an anonymous directory. Once the volume is known, the directory belongs to it: it must not be
    torn down under two names.
    """
    there, uid = dict(actual), mount.pod_uid
    for name, before in actual.items():
        if name == mount.unique_name:
            continue
        volume = before
        own = there.get(mount.unique_name) or Volume(mount.unique_name, volume.plugin)
        pods = dict(volume.pods)
        left = pods.get(uid)
        if left is not None and left.found and left.left.damaged and left.left.path == mount.path:
            del pods[uid]
            there[name] = volume = replace(volume, pods=pods)
            if uid not in own.pods:
                found = PodMount(mount, Presence.UNCERTAIN, found=True)
                own = replace(own, pods={**own.pods, uid: found})
            there[own.unique_name] = own
        device = volume.staged if volume.device_found else None
        if device is not None and device.damaged and device.path == staged.path:
            there[name] = replace(volume, device=Presence.ABSENT, staged=None, device_found=False)
            if own.device is Presence.ABSENT:
                own = replace(own, device=Presence.UNCERTAIN, staged=staged, device_found=True)
            there[own.unique_name] = own
    return there
