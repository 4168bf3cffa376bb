"""Removes SCSI disks that are no longer used.

Must never remove a disk that has an exclusive user. Source: docs/reference/behaviour-storage.md,
sh, sq.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.base import InThread, run
from kubeletpy.volumes.intree.scsi import ScsiTree


async def let_go(tree: ScsiTree, names: Iterable[str], in_thread: InThread) -> None:
    """Remove the multipath maps of disks (``sdb``, …), flush the disks and remove them from the
    kernel. Raises OperationFailed: a disk is in use, or a program failed.
    """
    disks = set(names)
    maps: set[str] = set()
    for name in sorted(disks):
        look = partial(scsi.multipath_of, tree, f"{tree.dev}/{name}")
        found = await in_thread(look, f"search for the map of {name}")
        if found is not None:
            maps.add(found)
            members = partial(scsi.members_of, tree, found)
            disks.update(await in_thread(members, f"search for the disks of {found}"))
    for device in sorted(maps):
        await _unheld(device, in_thread)
        await run("multipath", ["-f", device], call=f"multipath -f {device}")
    for name in sorted(disks):
        device = f"{tree.dev}/{name}"
        await _unheld(device, in_thread)
        await run("blockdev", ["--flushbufs", device], call=f"flush of {device}")
        await in_thread(partial(scsi.delete, tree, name), f"removal of {device}")


async def _unheld(device: str, in_thread: InThread) -> None:
    call = f"check of {device}"
    if await in_thread(partial(scsi.is_held, device), call):
        message = f"{device} is still in use: it is mounted elsewhere, or part of something"
        raise OperationFailed(FailureOutcome.UNCERTAIN, message, call=call)
