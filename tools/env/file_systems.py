"""File systems of their own, on loop devices."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
