"""Mounts a disk: checks it first, or formats it when it is blank.

A disk with anything on it, a partition table included, is never formatted. Source:
docs/reference/behaviour-storage.md, sq1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.host.program import Program, ProgramFailed, run_program
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import FilesystemMismatch, OperationFailed
from kubeletpy.volumes.files.disk import is_mounted
from kubeletpy.volumes.intree.base import DIRECTORY_MODE, find_program, run

log = logging.getLogger(__name__)

_EVENT_WORD = "MountVolume.MountDevice"
MKFS = {
    "ext3": ("mkfs.ext3", ("-F", "-m0")),
    "ext4": ("mkfs.ext4", ("-F", "-m0")),
    "xfs": ("mkfs.xfs", ("-f",)),
    "btrfs": ("mkfs.btrfs", ()),
}
"""The supported file systems, and how they are made."""
GROW = {
    "ext3": ("resize2fs", "device"),
    "ext4": ("resize2fs", "device"),
    "xfs": ("xfs_growfs", "-d", "path"),
    "btrfs": ("btrfs", "filesystem", "resize", "max", "path"),
}
"""How they grow; ``device`` and ``path`` stand for the disk and its mount point."""
BLKID = "blkid"
LONG_S = 3600.0
"""The deadline for work on a whole disk: killing it halfway would do harm."""
_NOTHING_FOUND = 2
_UNCORRECTED = 4
"""The fsck exit status (a bit of it) that means errors are left."""


class Content(Struct, frozen=True):
    """The content of a disk."""

    fs_type: str = ""
    """Empty: no file system that blkid recognises."""
    empty: bool = False
    """Blank: it may be formatted."""


def read_blkid(text: str) -> Content:
    """The output of ``blkid -o export`` for a disk."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return Content(found.get("TYPE", "") if "PTTYPE" not in found else "")


async def format_and_mount(
    device: str,
    target: str,
    fs_type: str,
    options: Sequence[str],
    *,
    read_only: bool,
    in_thread: Callable[[Callable[[], Any], str], Awaitable[Any]],
) -> None:
    """Mount ``device`` at ``target``; an existing mount there stays.

    Raises:
        OperationFailed: it is damaged, or can't be formatted or mounted; FilesystemMismatch when
            it holds something else.
    """
    if await in_thread(partial(is_mounted, target), "read of the mount table"):
        return
    call = f"mount of {device}"
    if fs_type not in MKFS:
        message = f"fsType {fs_type!r} is not one of {', '.join(sorted(MKFS))}"
        raise OperationFailed(FailureOutcome.FINAL, message, event_word=_EVENT_WORD, call=call)
    content = await content_of(device)
    if content.empty:
        if read_only:
            message = f"{device} is not formatted, and the volume is read-only"
            raise OperationFailed(FailureOutcome.FINAL, message, event_word=_EVENT_WORD, call=call)
        program, args = MKFS[fs_type]
        await run(
            program,
            [*args, device],
            call=f"{program} {device}",
            event_word=_EVENT_WORD,
            timeout=LONG_S,
        )
    elif content.fs_type and not read_only:
        await check(device)
    make = partial(Path(target).mkdir, DIRECTORY_MODE, parents=True, exist_ok=True)
    await in_thread(make, f"mkdir {target}")
    words = ",".join([*options, *(["ro"] if read_only else []), "defaults"])
    try:
        await run(
            "mount", ["-t", fs_type, "-o", words, device, target], call=call, event_word=_EVENT_WORD
        )
    except OperationFailed as error:
        if content.empty or content.fs_type == fs_type:
            raise
        holds = f"a {content.fs_type} file system" if content.fs_type else "something else"
        message = f"{device} holds {holds}, not the {fs_type} requested: {error.message}"
        raise FilesystemMismatch(
            error.outcome, message, event_word=_EVENT_WORD, call=call
        ) from error


async def content_of(device: str) -> Content:
    """The content that blkid finds: a file system, a partition table or other data it recognizes.

    Raises:
        OperationFailed: it could not read the disk; nothing may be concluded.
    """
    call = f"blkid of {device}"
    path = await find_program(BLKID)
    if path is None:
        message = "blkid is not installed on this node (package util-linux)"
        raise OperationFailed(FailureOutcome.FINAL, message, event_word=_EVENT_WORD, call=call)
    try:
        said = await run_program(Program(path, ("-p", "-o", "export", device)), b"")
    except ProgramFailed as error:
        if error.exit_status == _NOTHING_FOUND:
            return Content(empty=True)
        message = f"what is on {device} is not known: {error}"
        raise OperationFailed(
            FailureOutcome.FINAL, message, event_word=_EVENT_WORD, call=call
        ) from error
    return read_blkid(said.decode(errors="replace"))


async def check(device: str) -> None:
    """Repair what is safe to repair automatically. Raises OperationFailed: errors are left."""
    path = await find_program("fsck")
    if path is None:
        log.warning("a disk is mounted unchecked: fsck is not installed", extra={"device": device})
        return
    try:
        await run_program(Program(path, ("-a", device)), b"", timeout=LONG_S)
    except ProgramFailed as error:
        status = error.exit_status
        if status is not None and status & _UNCORRECTED:
            message = f"fsck found errors on {device} that it could not correct: {error}"
            raise OperationFailed(
                FailureOutcome.FINAL, message, event_word=_EVENT_WORD, call=f"fsck of {device}"
            ) from error
        if status == 1:
            log.warning("fsck has corrected errors", extra={"device": device})
        else:
            log.warning("fsck could not check a disk", extra={"device": device, "why": str(error)})


async def grow(device: str, target: str) -> None:
    """Grow the file system mounted at ``target`` to fill its disk. Raises OperationFailed."""
    fs_type = (await content_of(device)).fs_type
    if fs_type not in GROW:
        message = f"{device} holds {fs_type or 'nothing'} that could grow"
        raise OperationFailed(FailureOutcome.FINAL, message, call=f"file system resize of {device}")
    program, *words = GROW[fs_type]
    places = {"device": device, "path": target}
    args = [places.get(word, word) for word in words]
    await run(program, args, call=f"{program} of {device}", timeout=LONG_S)
