"""Unique names of one volume that are spelled in two ways. Pure.

The disk does not show how the API spells a name. On disk, the portal of an iSCSI volume always has
its port, and names of Fibre Channel disks have underscores for blanks and dashes between them. The
kubelet treats them as two volumes. Source: docs/reference/behaviour-storage.md, sc1, sq.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kubeletpy.base.structs import replace
from kubeletpy.volumes.operations.model import Volume

_ISCSI = re.compile(r"(kubernetes\.io/iscsi/)(.+?):((?:iqn|eui|naa)\..+)")
_FC = re.compile(r"(kubernetes\.io/fc/\[)([^\]]*)(\].*)")
_BETWEEN = re.compile(r"[ -]")
_HAS_PORT = re.compile(r"(\[.*\]|[^\[\]]*):[0-9]+")


def canonical(unique_name: str) -> str:
    """A key that is equal for all spellings of a name."""
    if (found := _ISCSI.fullmatch(unique_name)) is not None:
        portal = found[2] if _HAS_PORT.fullmatch(found[2]) else f"{found[2]}:3260"
        return f"{found[1]}{portal}:{found[3]}"
    if (found := _FC.fullmatch(unique_name)) is not None:
        return f"{found[1]}{_BETWEEN.sub('_', found[2])}{found[3]}"
    return unique_name


def spelled(
    actual: Mapping[str, Volume], names: Collection[str], busy: Collection[str] = ()
) -> dict[str, Volume]:
    """All known volumes, renamed to the spelling in ``names``.

    ``busy``: names with operations in progress; they stay.
    """
    wanted = {canonical(name): name for name in names if name not in actual}
    there = {}
    for name, volume in actual.items():
        new = wanted.get(canonical(name), name)
        free = name not in names and name not in busy
        there[new if free else name] = _called(volume, new) if free and new != name else volume
    return there


def _called(volume: Volume, name: str) -> Volume:
    pods = {
        uid: replace(mount, left=replace(mount.left, unique_name=name))
        for uid, mount in volume.pods.items()
    }
    staged = replace(volume.staged, unique_name=name) if volume.staged is not None else None
    return replace(volume, unique_name=name, pods=pods, staged=staged)
