"""A Fibre Channel volume: its names, its place, its links.

Pure. Names come from the API: a name that could lead elsewhere is refused. Source:
docs/reference/behaviour-storage.md, sc1, sj, sq.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import UnsafePath, safe_name

PLUGIN = "kubernetes.io/fc"
MAX_LUN = 255
_TARGET = re.compile(r"[^/\0-\x1f-]+")
"""A place joins them with dashes."""
_ID = re.compile(r"[^/\0-\x1f]+")


class FcDisk(Struct, frozen=True):
    """A disk identified by its targets (and its LUN there), or by its own names."""

    targets: tuple[str, ...] = ()
    lun: int = 0
    ids: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Its directory below that of the plugin."""
        if self.targets:
            return f"{'-'.join(self.targets)}-lun-{self.lun}"
        return "-".join(self.ids)


def disk_of(source: Mapping[str, Any]) -> FcDisk:
    """The disk that a source names; requires that it has no :func:`problem`. Blanks become
    underscores, as udev writes them.
    """
    targets, lun = source.get("targetWWNs") or (), source.get("lun")
    if targets and lun is not None:
        return FcDisk(tuple(targets), lun)
    return FcDisk(ids=tuple(each.replace(" ", "_") for each in source.get("wwids") or ()))


def problem(source: Mapping[str, Any]) -> str:
    """Why a source is invalid; empty: it is valid."""
    targets, ids, lun = source.get("targetWWNs") or (), source.get("wwids") or (), source.get("lun")
    if not ids and (not targets or lun is None):
        return "fc: it names neither targetWWNs with a lun nor wwids"
    if lun is not None and (not isinstance(lun, int) or not 0 <= lun <= MAX_LUN):
        return f"fc: {lun!r} is no LUN"
    for word, names in ((_TARGET, targets), (_ID, ids)):
        for name in names:
            if not isinstance(name, str) or word.fullmatch(name) is None:
                return f"fc: {name!r} is no name of a target or disk"
    try:
        safe_name(disk_of(source).place)
    except UnsafePath as error:
        return f"fc: {error}"
    return ""


def unique_name(source: Mapping[str, Any]) -> str:
    """The attach controller's name of it: names are written as in the source."""
    targets, lun = source.get("targetWWNs") or (), source.get("lun")
    if targets and lun is not None:
        return f"{PLUGIN}/[{' '.join(targets)}]:{lun}"
    return f"{PLUGIN}/[{' '.join(source.get('wwids') or ())}]"


def disk_at(place: str) -> FcDisk | None:
    """The disk that a directory name stands for; None: none."""
    parts = place.split("-")
    if not all(parts) or "/" in place:
        return None
    if len(parts) > 1 and parts[-2] == "lun":
        if not parts[:-2] or not parts[-1].isdigit() or int(parts[-1]) > MAX_LUN:
            return None
        return FcDisk(tuple(parts[:-2]), int(parts[-1]))
    return FcDisk(ids=tuple(parts))


def name_of(disk: FcDisk) -> str:
    """The unique name of a disk whose source has no blanks."""
    if disk.targets:
        return f"{PLUGIN}/[{' '.join(disk.targets)}]:{disk.lun}"
    return f"{PLUGIN}/[{' '.join(disk.ids)}]"


def links_of(disk: FcDisk, by_path: Iterable[str], by_id: Iterable[str]) -> list[str]:
    """The links of a disk among those in udev's ``by-path`` and ``by-id``."""
    if not disk.targets:
        # in a place, a dash may separate two names or be part of one
        desired = {f"scsi-{each}" for each in (*disk.ids, "-".join(disk.ids))}
        return [f"by-id/{name}" for name in by_id if name in desired]
    names = "|".join(re.escape(each) for each in disk.targets)
    link = re.compile(rf"(pci-.*-fc|fc)-0x({names})-lun-{disk.lun}")
    return [f"by-path/{name}" for name in by_path if link.fullmatch(name)]
