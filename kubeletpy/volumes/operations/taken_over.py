"""What there is of volumes when an agent before this one has left some. Pure.

Nothing found is certain: the other agent may have been killed at any instant. Source:
docs/reference/behaviour-storage.md, sn1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kubeletpy.volumes.on_disk import Found
from kubeletpy.volumes.operations.model import PodMount, Presence, Volume


def taken_over(actual: Mapping[str, Volume], plugin: str, found: Found) -> dict[str, Volume]:
    """All there is, with what one plugin has found."""
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
