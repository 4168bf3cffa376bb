"""Keeps the logs of running containers within containerLogMaxSize and containerLogMaxFiles.

A log that has grown too large is renamed, and the runtime reopens it; if it can't, the
rename is undone. Files are accessed relative to open directories, so no link leads elsewhere. Must
never lose a line: only old rotations are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import open_folder_of
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.config import KubeletSettings
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.server.logs.records import COMPRESSED, UNFINISHED, plan_rotation, rotated_name

log = logging.getLogger(__name__)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_COMPRESSED_SIZES = 16
_COMPRESSED_AT_LEAST = 256 << 20
"""A rotation that exceeds this and so many maximum sizes is not compressed.

A sparse file of a terabyte would block the thread, and so the rotation of all logs, for hours.
"""


class RotationSettings(Struct, frozen=True):
    """Settings of rotation: ``max_size`` in bytes (negative for none), ``interval`` in seconds."""

    max_size: int = 10 << 20
    max_files: int = 5
    workers: int = 1
    interval: float = 10.0

    @classmethod
    def from_settings(cls, settings: KubeletSettings) -> RotationSettings:
        """Return the limits of the settings."""
        return cls(
            max_size=settings.container_log_max_size,
            max_files=settings.container_log_max_files,
            workers=settings.container_log_max_workers,
            interval=settings.container_log_monitor_interval,
        )


class LogRotator(Component):
    """Rotates the logs of all running containers in one loop."""

    runtime: RuntimeService
    # its containers' logs are rotated.
    cache: PodStatusCache
    # podLogsDir, which logs must be below.
    root: str
    settings: RotationSettings
    clock: Clock

    def __post_init__(self) -> None:
        self._most = max(_COMPRESSED_SIZES * self.settings.max_size, _COMPRESSED_AT_LEAST)
        self._slots = asyncio.Semaphore(self.settings.workers)
        self._threads = PatientThreads(self.settings.workers + 1)
        """Separate threads: compressing logs takes long and must not delay the start of pods."""

    async def run(self) -> None:
        """Check the logs periodically until canceled."""
        if self.settings.max_size < 0:
            return
        while True:
            await asyncio.sleep(self.settings.interval)
            try:
                await self.rotate_due()
            except OSError as error:
                log.warning("container logs can't be checked; retrying", extra={"why": str(error)})
            except Exception:  # the boundary of a pass: the next one runs regardless
                log.exception("a pass of the log rotation failed")

    async def rotate_due(self) -> None:
        """Make one pass over the running containers."""
        logs = self._logs()
        due = await self._threads.run(lambda: [id_ for id_ in logs if self._is_due(logs[id_])])
        await run_together(*(self._rotate(container, logs[container]) for container in due))

    def _logs(self) -> dict[str, str]:
        statuses = (self.cache.status(uid) for uid in self.cache)
        return {
            container.id: container.log_path
            for status in statuses
            if status is not None
            for container in status.running_containers
            if container.log_path
        }

    def _is_due(self, path: str) -> bool:
        # a cheap check, as nearly all logs are small; a symlink can only make the size wrong
        with contextlib.suppress(OSError):
            if os.lstat(path).st_size <= self.settings.max_size:
                return False
        try:
            with _folder_of(self.root, path) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return True
        except OSError as error:
            log.debug("a log can't be checked", extra={"path": path, "why": str(error)})
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size > self.settings.max_size

    async def _rotate(self, container: str, path: str) -> None:
        async with self._slots:
            try:
                rotated = await self._threads.run(self._prune_and_rename, path)
                try:
                    await self.runtime.reopen_container_log(container)
                except BaseException:
                    if rotated:
                        await self._threads.run(self._undo_rename, path, rotated)
                    raise
            except (OSError, CRIError) as error:
                log.warning("a log can't be rotated", extra={"path": path, "why": str(error)})

    def _prune_and_rename(self, path: str) -> str:
        """Prune rotations and rename the log; return its new name, or "" if there is no log."""
        with _folder_of(self.root, path) as (folder, name):
            found, others = _entries(folder)
            plan = plan_rotation(name, found, self.settings.max_files)
            # entries that are no files were put there by others, and may neither count nor stay
            for each in (
                *plan.remove,
                *(other for other in others if other.startswith(f"{name}.")),
            ):
                with contextlib.suppress(FileNotFoundError):
                    _try(os.unlink, path, each, folder)
            for each in plan.compress:
                _try(partial(_compress, most=self._most), path, each, folder)
            rotated = rotated_name(name, self.clock.now())
            try:
                # a link fails where a rename would overwrite a rotation of the same second
                os.link(name, rotated, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return ""
            os.unlink(name, dir_fd=folder)
            return rotated

    def _undo_rename(self, path: str, rotated: str) -> None:
        with _folder_of(self.root, path) as (folder, name), contextlib.suppress(FileExistsError):
            os.link(rotated, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(rotated, dir_fd=folder)


def _entries(folder: int) -> tuple[list[str], list[str]]:
    """Return the names of files in a directory, and of all else that is no directory."""
    files, others = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif not entry.is_dir(follow_symlinks=False):
                others.append(entry.name)
    return files, others


def _try(action: Callable[..., None], path: str, name: str, folder: int) -> None:
    """Change an old file; a failure is logged, so that the log itself still rotates."""
    try:
        action(name, dir_fd=folder)
    except OSError as error:
        about = {"path": path, "file": name, "why": str(error)}
        log.warning("an old log file can't be tidied up; it stays", extra=about)


def _compress(name: str, *, dir_fd: int, most: int) -> None:
    folder, unfinished = dir_fd, name + UNFINISHED
    source = os.open(name, _OLD, dir_fd=folder)
    with os.fdopen(source, "rb") as plain:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return
        target = os.open(unfinished, _NEW, 0o640, dir_fd=folder)
        with os.fdopen(target, "wb") as file, gzip.open(file, "wb") as packed:
            shutil.copyfileobj(_Bounded(plain, most), packed, 1 << 20)
    # by this time a slow reader has recorded which of the files it has read
    os.utime(unfinished, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=folder)
    os.rename(unfinished, name + COMPRESSED, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(name, dir_fd=folder)


class _Bounded(Component):
    """Reads a file that must not grow past a size while it is copied."""

    file: IO[bytes]
    left: int

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes. Raises OSError if there are more than allowed."""
        data = self.file.read(count)
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.EFBIG, "the file grows while it is compressed")
        return data


@contextmanager
def _folder_of(root: str, path: str) -> Iterator[tuple[int, str]]:
    folder, name = open_folder_of(root, path)
    try:
        yield folder, name
    finally:
        os.close(folder)
