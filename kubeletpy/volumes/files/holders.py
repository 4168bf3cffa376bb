"""Finds the processes that keep a mount from being unmounted, by their links in /proc.

Blocking, for threads: but only links of /proc are read, which never wait for the mounted file
system, and nothing is opened through them. Processes are untrusted: their number and the CPU time
of a scan are bounded, and only the process ID and the command's name are reported.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kubeletpy.base.structs import Struct

MAX_PROCESSES = 20_000
MAX_FILES = 1024
"""Open files that are checked for each process."""
MAX_S = 0.5
"""CPU seconds of one scan, so that a busy machine does not shorten it."""
SHOWN = 3
_LONGEST = 16
"""Bytes of a command's name, as the kernel has it."""


class HoldingProcess(Struct, frozen=True):
    """A process; ``apart``: it is in another mount namespace, where the path may be another one."""

    pid: int
    command: str
    apart: bool = False


def holders(
    mount_point: str, proc: str = "/proc", *, now: Callable[[], float] = time.thread_time
) -> list[HoldingProcess]:
    """Processes whose directory, root, program or an open file is at or below a mount point.

    Those of this mount namespace come first; SHOWN at most. The mount point is canonical.
    """
    ends = now() + MAX_S
    ours = _link(f"{proc}/self/ns/mnt")
    found: list[HoldingProcess] = []
    for pid in itertools.islice(_pids(proc), MAX_PROCESSES):
        if now() > ends or sum(not each.apart for each in found) >= SHOWN:
            break
        if any(_is_below(link, mount_point) for link in _links(f"{proc}/{pid}")):
            apart = _link(f"{proc}/{pid}/ns/mnt") != ours
            found.append(HoldingProcess(pid, _command(f"{proc}/{pid}"), apart))
    return sorted(found, key=lambda each: each.apart)[:SHOWN]


def holders_text(found: list[HoldingProcess]) -> str:
    """The processes as text for the end of a sentence; empty: none was found."""
    if not found:
        return ""
    names = [
        f"process {each.pid} ({each.command}{', in another mount namespace' if each.apart else ''})"
        for each in found
    ]
    return f"; it is in use by {', '.join(names)}"


def _pids(proc: str) -> Iterator[int]:
    try:
        with os.scandir(proc) as entries:
            for entry in entries:
                if entry.name.isascii() and entry.name.isdecimal():
                    yield int(entry.name)
    except OSError:
        return


def _links(process: str) -> Iterator[str]:
    for name in ("cwd", "root", "exe"):
        yield _link(f"{process}/{name}")
    try:
        with os.scandir(f"{process}/fd") as entries:
            for entry in itertools.islice(entries, MAX_FILES):
                yield _link(entry.path)
    except OSError:  # it has ended, or may not be read
        return


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _is_below(link: str, mount_point: str) -> bool:
    return link == mount_point or link.startswith(f"{mount_point}/")


def _command(process: str) -> str:
    try:
        with Path(f"{process}/comm").open("rb") as file:
            name = file.read(_LONGEST).split(b"\n")[0].decode(errors="replace")
    except OSError:
        return "?"
    return "".join(letter if letter.isprintable() else "?" for letter in name) or "?"
