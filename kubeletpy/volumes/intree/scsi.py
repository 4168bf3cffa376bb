"""SCSI disks of the node: found in the kernel's directories, scanned for, and removed when unused.

All functions but :func:`remove_disks` block, and are for threads. Source:
docs/reference/behaviour-storage.md, sh, sq; Linux drivers/scsi.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.intree.base import InThread, run

_HOST = re.compile(r"host([0-9]+)")
MAX_TEXT = 4096
"""The most bytes of a kernel attribute."""


class ScsiTree(Struct, frozen=True):
    """Where the kernel and udev show devices; tests have similar trees."""

    sys: str = "/sys"
    dev: str = "/dev"


class Session(Struct, frozen=True):
    """An iSCSI session as the kernel shows it."""

    host: int
    """Number of its SCSI host."""
    path: str
    portals: frozenset[str]
    """``address:port`` of its connections, both current and as requested."""


def sessions_of(tree: ScsiTree, iqn: str) -> list[Session]:
    """The sessions with a target; unreadable ones are skipped. Raises OSError."""
    hosts = Path(tree.sys, "class/iscsi_host")
    return [
        Session(int(number[1]), str(session), frozenset(_portals(session)))
        for host in _entries(hosts)
        if (number := _HOST.fullmatch(host.name)) is not None
        for session in _entries(host / "device")
        if session.name.startswith("session")
        and _text(session / "iscsi_session" / session.name / "targetname") == iqn
    ]


def host_of(sessions: list[Session], portal: str) -> int | None:
    """The SCSI host of the session through a portal; None: there is no such session."""
    return next((each.host for each in sessions if portal in each.portals), None)


def disks_of_lun(sessions: list[Session], lun: int) -> list[str]:
    """Names of the disks of a LUN, one for each session, for example ``sdb``."""
    return [name for each in sessions for number, name in _disks(each) if number == lun]


def disks_of_other_luns(sessions: list[Session], lun: int) -> list[str]:
    """Names of the other disks of the same sessions."""
    return [name for each in sessions for number, name in _disks(each) if number != lun]


def scan_lun(tree: ScsiTree, host: int, lun: int) -> None:
    """Have the kernel scan for one LUN: nobody would notice when others go. Raises OSError."""
    Path(tree.sys, f"class/scsi_host/host{host}/scan").write_text(f"0 0 {lun}")


def scan_all(tree: ScsiTree) -> None:
    """Have the kernel scan all hosts for disks. Raises OSError: no host could be scanned."""
    hosts = list(_entries(Path(tree.sys, "class/scsi_host")))
    failed: list[OSError] = []
    for host in hosts:
        try:
            (host / "scan").write_text("- - -")
        except OSError as error:
            failed.append(error)
    if hosts and len(failed) == len(hosts):
        raise failed[0]


def multipath_of(tree: ScsiTree, device: str) -> str | None:
    """The multipath map that contains a disk: ``/dev/dm-0``; None: none does."""
    name = Path(os.path.realpath(device)).name
    if name.startswith("dm-"):
        return f"{tree.dev}/{name}"
    for each in _entries(Path(tree.sys, "block")):
        if each.name.startswith("dm-") and (each / "slaves" / name).exists():
            return f"{tree.dev}/{each.name}"
    return None


def members_of(tree: ScsiTree, device: str) -> list[str]:
    """Names of the disks of a multipath map."""
    name = Path(device).name
    return [each.name for each in _entries(Path(tree.sys, "block", name, "slaves"))]


def is_held(device: str) -> bool:
    """Whether a disk has an exclusive user: it is mounted, part of a map, or swapped to.

    Raises OSError: this cannot be determined.
    """
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM):
            return False
        raise
    os.close(descriptor)
    return False


def delete(tree: ScsiTree, name: str) -> None:
    """Remove a disk from the kernel, if it is there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(f"{tree.sys}/block/{name}/device/delete", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def _portals(session: Path) -> Iterator[str]:
    for each in _entries(session):
        if not each.name.startswith("connection"):
            continue
        connection = each / "iscsi_connection" / each.name
        for address, port in (("address", "port"), ("persistent_address", "persistent_port")):
            host, number = _text(connection / address), _text(connection / port)
            if host and number:
                yield f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _disks(session: Session) -> Iterator[tuple[int, str]]:
    # channel and target are always 0 for iSCSI
    for unit in _entries(Path(session.path, f"target{session.host}:0:0")):
        number = unit.name.removeprefix(f"{session.host}:0:0:")
        if number.isdigit():
            yield from ((int(number), each.name) for each in _entries(unit / "block"))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(path: Path) -> str:
    """An attribute; empty when unreadable: a session may end at any moment."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT).decode(errors="replace").strip()
    except OSError:
        return ""


async def remove_disks(tree: ScsiTree, names: Iterable[str], in_thread: InThread) -> None:
    """Remove the multipath maps of disks (``sdb``, …), flush and delete the disks in the kernel.

    A disk that has an exclusive user is never removed. Raises OperationFailed: a disk is in use, or
    a program failed.
    """
    disks = set(names)
    maps: set[str] = set()
    for name in sorted(disks):
        check = partial(multipath_of, tree, f"{tree.dev}/{name}")
        found = await in_thread(check, f"search for the map of {name}")
        if found is not None:
            maps.add(found)
            members = partial(members_of, tree, found)
            disks.update(await in_thread(members, f"search for the disks of {found}"))
    for device in sorted(maps):
        await _check_unused(device, in_thread)
        await run("multipath", ["-f", device], call=f"multipath -f {device}")
    for name in sorted(disks):
        device = f"{tree.dev}/{name}"
        await _check_unused(device, in_thread)
        await run("blockdev", ["--flushbufs", device], call=f"flush of {device}")
        await in_thread(partial(delete, tree, name), f"removal of {device}")


async def _check_unused(device: str, in_thread: InThread) -> None:
    call = f"check of {device}"
    if await in_thread(partial(is_held, device), call):
        message = f"{device} is still in use: it is mounted elsewhere, or part of something"
        raise OperationFailed(FailureOutcome.UNCERTAIN, message, call=call)
