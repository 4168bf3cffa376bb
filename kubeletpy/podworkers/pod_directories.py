"""Removes the directories of pods that are gone (docs/reference: orphan pod directories).

Containers could write below a pod's directory, so nothing here follows a link or crosses into
another file system, and a directory that still has something mounted stays.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from kubeletpy.host.trees import holds_mount, remove_tree

log = logging.getLogger(__name__)

KEPT_DIRECTORIES = ("volumes", "volume-subpaths", "volumeDevices")
"""Directories that hold mount points: removed only when nothing is left in them."""


class PodDirectories:
    """The directories below ``{root}/pods``."""

    def __init__(
        self,
        pods_dir: Path,
        release: Callable[[str], None] = lambda uid: None,
        again: Callable[[], None] = lambda: None,
        swept: Callable[[int, int], None] = lambda found, left: None,
    ) -> None:
        """Args:
        pods_dir: ``{root}/pods``.
        release: takes down the volumes of a gone pod (by uid) first; may block.
        again: called after a sweep that found something: what is left, or waits for this, has
            to be looked at once more.
        swept: told after each sweep how many directories of gone pods there were and how many of
            them are still there.
        """
        self._pods_dir = pods_dir
        self._release = release
        self._again = again
        self._swept = swept
        self._complained: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def sweep_soon(self, keep: Collection[str]) -> None:
        """Remove in the background what belongs to no pod of ``keep`` (uids). Never blocks."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._sweep(frozenset(keep)))

    async def close(self) -> None:
        """Wait for a sweep under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _sweep(self, keep: frozenset[str]) -> None:
        found: list[str] = []

        def release(uid: str) -> None:
            found.append(uid)
            self._release(uid)

        problems = await asyncio.to_thread(remove_orphans, self._pods_dir, keep, release)
        for uid, problem in problems.items():
            if uid not in self._complained:
                log.warning("directory of a gone pod stays", extra={"uid": uid, "why": problem})
        self._complained = set(problems)
        self._swept(len(found), len(problems))
        if found:
            self._again()


def remove_orphans(
    pods_dir: Path, keep: Collection[str], release: Callable[[str], None] = lambda uid: None
) -> dict[str, str]:
    """Remove the directories of pods not in ``keep``; uid -> why it could not be removed.

    ``release(uid)`` takes the volumes of a pod down first.
    """
    problems: dict[str, str] = {}
    try:
        entries = [entry for entry in os.scandir(pods_dir) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return problems
    device = pods_dir.stat().st_dev
    for entry in entries:
        if entry.name in keep:
            continue
        try:
            release(entry.name)
            _remove_pod_directory(Path(entry.path), device)
        except OSError as error:
            problems[entry.name] = str(error)
    return problems


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
    """Remove directories only: a file below a volume directory is somebody's data."""
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
