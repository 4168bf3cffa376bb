"""Removes the directories of pods that were removed (docs/reference/behaviour.md, i9).

Containers could write below a pod's directory, so nothing here follows a link or crosses into
another file system, and a directory with something still mounted in it stays.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from kubeletpy.base.host.files import holds_mount, remove_tree
from kubeletpy.base.structs import Component
from kubeletpy.volumes.files.paths import UnsafePath

log = logging.getLogger(__name__)

KEPT_DIRECTORIES = ("volumes", "volume-subpaths", "volumeDevices")
"""Directories that hold mount points: removed only when nothing is left in them."""


class PodDirectories(Component):
    """The directories below ``{root}/pods``."""

    # ``{root}/pods``.
    pods_dir: Path
    # takes down the volumes of a removed pod (by uid) first; may block.
    release: Callable[[str], None] = lambda uid: None
    # called after a sweep that found something: what is left, or waits for the sweep, must be
    # checked again.
    again: Callable[[], None] = lambda: None
    # called after each sweep with how many directories of removed pods there were and how many of
    # them are still there.
    swept: Callable[[int, int], None] = lambda found, left: None
    # whether a pod (by uid) has arrived since the sweep was requested, or is terminating.
    desired: Callable[[str], bool] = lambda uid: False

    def __post_init__(self) -> None:
        self._complained: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def has_volumes(self, uid: str) -> bool:
        """Whether something of a pod is still mounted, as far as its directory shows."""
        try:
            return any((self.pods_dir / uid / "volumes").iterdir())
        except OSError:
            return False

    def sweep_soon(self, keep: Collection[str]) -> None:
        """Remove the directories of pods not in ``keep`` (uids) in the background. Never blocks."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._sweep(frozenset(keep)))

    async def close(self) -> None:
        """Wait for a sweep in progress."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _sweep(self, keep: frozenset[str]) -> None:
        found, problems = 0, dict[str, str]()
        for uid in await asyncio.to_thread(_pods_with_directories, self.pods_dir):
            # the thread took time: a pod may have come, and made its directory, meanwhile
            if uid in keep or self.desired(uid):
                continue
            found += 1
            problem = await asyncio.to_thread(remove_orphan, self.pods_dir / uid, self.release)
            if problem is not None:
                problems[uid] = problem
        for uid, problem in problems.items():
            if uid not in self._complained:
                log.warning(
                    "the directory of a removed pod could not be removed",
                    extra={"uid": uid, "why": problem},
                )
        self._complained = set(problems)
        self.swept(found, len(problems))
        if found:
            self.again()


def remove_orphan(directory: Path, release: Callable[[str], None] = lambda uid: None) -> str | None:
    """Remove the directory of a removed pod; returns why that failed, if it did. Blocks.

    ``release(uid)`` takes down the pod's volumes first.
    """
    try:
        release(directory.name)
        _remove_pod_directory(directory, directory.parent.stat().st_dev)
    except (OSError, UnsafePath) as error:
        return str(error)
    return None


def _pods_with_directories(pods_dir: Path) -> list[str]:
    """The uids of pods that have a directory. Blocks."""
    try:
        with os.scandir(pods_dir) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _remove_pod_directory(directory: Path, device: int) -> None:
    for name in KEPT_DIRECTORIES:
        _remove_empty_tree(directory / name, device)
    for entry in list(os.scandir(directory)):
        if not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
        elif holds_mount(entry.path, device):
            raise OSError(f"{entry.path} holds a mount")
        else:
            remove_tree(entry.path)
    directory.rmdir()


def _remove_empty_tree(directory: Path, device: int) -> None:
    """Remove directories only: a file below a volume directory is user data."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return
    if found.st_dev != device:
        raise OSError(f"{directory} is a mount point")
    try:
        remove_tree(str(directory), only_directories=True)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        what = f"{error.filename!r} is left in a volume directory below {directory}"
        raise OSError(error.errno, what) from error
