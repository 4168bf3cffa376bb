"""Faults of a machine, each until the end of its block, and file systems that can be filled.

Those that take a directory are about the file system it is on; those that take a process id need
the process to live until the end of the block.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.env.kernel_limits import cgroup_of, hierarchy
from tools.env.sweep import remove_cgroup

MI = 1 << 20


@contextmanager
def file_system(directory: Path, size: int, inodes: int | None = None) -> Iterator[None]:
    """Mount a file system on a directory; ``size`` in bytes."""
    image = directory.with_name(f"{directory.name}.img")
    directory.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(size)
    desired = [] if inodes is None else ["-N", str(inodes)]
    subprocess.run(["mkfs.ext4", "-q", "-m0", *desired, str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-R", "-l", str(directory)], check=True)
        image.unlink()


def free(directory: Path) -> int:
    """Free bytes on the file system of a directory."""
    return shutil.disk_usage(directory).free


def leave(file: Path, left: int) -> None:
    """Fill the file system with a file, except for ``left`` bytes."""
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, free(file.parent) - left)


@contextmanager
def no_room(small: Path) -> Iterator[None]:
    """Fill all blocks of a file system."""
    file = small / "full"
    try:
        with contextlib.suppress(OSError), file.open("wb", buffering=0) as opened:
            while True:
                opened.write(bytes(4096))
        yield
    finally:
        file.unlink()


@contextmanager
def no_inodes(small: Path) -> Iterator[None]:
    """Use all inodes of a file system."""
    made: list[Path] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                file = small / f"empty-{len(made)}"
                file.touch()
                made.append(file)
        yield
    finally:
        for file in made:
            file.unlink()


@contextmanager
def read_only(small: Path) -> Iterator[None]:
    """Make new opens by path read-only; the mounts of containers stay writable."""
    _mount("--rbind", str(small), str(small))
    _mount("--make-rprivate", str(small))
    _mount("-o", "remount,ro,bind", str(small))
    try:
        yield
    finally:
        subprocess.run(["umount", "-R", "-l", str(small)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Prevent new descriptors; open ones stay open."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    most = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1  # noqa: PTH208
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def no_threads(pid: int) -> Iterator[None]:
    """Prevent new threads and processes; existing ones continue."""
    name = f"kpt-faults-{pid}"
    root = hierarchy("pids")
    group = root / name
    group.mkdir()
    home = cgroup_of(pid, "pids")
    (group / "cgroup.procs").write_text(str(pid))
    (group / "pids.max").write_text("1")
    try:
        yield
    finally:
        (root / home.lstrip("/") / "cgroup.procs").write_text(str(pid))
        remove_cgroup(f"/{name}")


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a process, so that it gets no CPU time."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
