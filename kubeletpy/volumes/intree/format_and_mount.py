"""Mounts a disk, formatting it first when there is nothing on it.

A disk with anything on it, a partition table included, is never formatted. Source:
docs/reference/behaviour-storage.md, sq1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.host.program import Program, ProgramFailed, run_program
from kubeletpy.volumes.intree.base import DIRECTORY_MODE, is_mounted, run
from kubeletpy.volumes.on_disk import Outcome
from kubeletpy.volumes.operation import OperationFailed

_EVENT_WORD = "MountVolume.MountDevice"
MKFS = {
    "ext3": ("mkfs.ext3", ("-F", "-m0")),
    "ext4": ("mkfs.ext4", ("-F", "-m0")),
    "xfs": ("mkfs.xfs", ("-f",)),
    "btrfs": ("mkfs.btrfs", ()),
}
"""File systems that are made, and how."""
BLKID = "/sbin/blkid"
_NOTHING_FOUND = 2


async def format_and_mount(
    device: str,
    target: str,
    fs_type: str,
    options: Sequence[str],
    *,
    read_only: bool,
    in_thread: Callable[[Callable[[], Any], str], Awaitable[Any]],
) -> None:
    """Mount ``device`` at ``target``; what is mounted there already stays.

    Raises:
        OperationFailed: it holds something else, or can't be formatted or mounted.
    """
    if await in_thread(partial(is_mounted, target), "look at mounts"):
        return
    call = f"mount of {device}"
    if fs_type not in MKFS:
        message = f"fsType {fs_type!r} is not one of {', '.join(sorted(MKFS))}"
        raise OperationFailed(Outcome.FINAL, message, event_word=_EVENT_WORD, call=call)
    if not await _has_something(device):
        if read_only:
            message = f"{device} is not formatted, and the volume is read-only"
            raise OperationFailed(Outcome.FINAL, message, event_word=_EVENT_WORD, call=call)
        program, args = MKFS[fs_type]
        await run(program, [*args, device], call=f"{program} {device}", event_word=_EVENT_WORD)
    make = partial(Path(target).mkdir, DIRECTORY_MODE, parents=True, exist_ok=True)
    await in_thread(make, f"mkdir {target}")
    words = ",".join([*options, *(["ro"] if read_only else []), "defaults"])
    await run(
        "mount", ["-t", fs_type, "-o", words, device, target], call=call, event_word=_EVENT_WORD
    )


async def _has_something(device: str) -> bool:
    """Whether blkid finds a file system, a partition table or anything else that it knows."""
    call = f"blkid of {device}"
    try:
        await run_program(Program(BLKID, ("-p", "-o", "export", device)), b"")
    except ProgramFailed as error:
        if error.exit_status == _NOTHING_FOUND:
            return False
        message = f"what is on {device} is not known: {error}"
        raise OperationFailed(Outcome.FINAL, message, event_word=_EVENT_WORD, call=call) from error
    return True
