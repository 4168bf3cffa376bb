"""The agent's files for a container: log and links, termination message, hook, record of its stop.

Paths are built from names in specs: one that could lead elsewhere is refused. Must never write into
a container's own files. Functions block, so they are called in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import steady_now
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.files import (
    open_file,
    open_folder,
    open_folder_of,
    write_private,
    write_whole,
)
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Lasting
from kubeletpy.runtime_manager.names import UnsafeName, container_parts, digest, termination_file
from kubeletpy.runtime_manager.plan.grace import HookState, StopRecord

logger = logging.getLogger(__name__)

LOG_DIRECTORY_MODE = 0o755
CONTAINER_DIRECTORY_MODE = 0o750
TERMINATION_FILE_MODE = 0o666
"""Containers running as any user write to it."""
TERMINATION_FILE_BYTES = 4
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_log_directory(path: str) -> None:
    """Make a log directory and its parents. Raises OSError."""
    with complete_errors(path):
        Path(path).mkdir(LOG_DIRECTORY_MODE, parents=True, exist_ok=True)


def log_sizes(log_directory: str) -> dict[str, int]:
    """The files in a log directory with their sizes in bytes; none if they can't be read.

    A link has the size of its text: a runtime that keeps its logs elsewhere links them when it
    starts the container.
    """
    try:
        with os.scandir(log_directory) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if not entry.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning(
            "restart count cannot be read from logs",
            extra={"directory": log_directory, "error": str(error)},
        )
        return {}


def container_directory(root: str, uid: str, container: str) -> Path:
    """Where the agent keeps files of a container: ``{root}/pods/{uid}/containers/{container}``.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
    """
    return Path(root, *container_parts(uid, container))


@contextlib.contextmanager
def made_container_directory(root: str, uid: str, container: str) -> Iterator[Path]:
    """Make the container's directory if it is missing; yields a path that no symlink can redirect.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be made, or a part of its path is a symlink.
    """
    folder = _made_folder(root, uid, container)
    try:
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


def _made_folder(root: str, uid: str, container: str) -> int:
    parts = container_parts(uid, container)
    with complete_errors(root):
        Path(root).mkdir(CONTAINER_DIRECTORY_MODE, parents=True, exist_ok=True)
    return open_folder(root, parts, CONTAINER_DIRECTORY_MODE)


def create_termination_file(root: str, uid: str, container: str) -> str:
    """Make ``{root}/pods/{uid}/containers/{container}/{8 hex digits}``, writable by all; its path.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be made.
    """
    folder = _made_folder(root, uid, container)
    try:
        name = secrets.token_hex(TERMINATION_FILE_BYTES)
        with complete_errors(container_directory(root, uid, container) / name):
            descriptor = os.open(name, _NEW, TERMINATION_FILE_MODE, dir_fd=folder)
        try:
            os.fchmod(descriptor, TERMINATION_FILE_MODE)  # regardless of the umask
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)
    return str(container_directory(root, uid, container) / name)


def remove_termination_file(root: str, uid: str, container: str, path: str) -> None:
    """Remove a file that create_termination_file made; anything else is left alone."""
    file = termination_file(root, uid, container, path)
    if not file:
        return
    try:
        folder, name = open_folder_of(root, file)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("file cannot be removed", extra={"path": file, "error": str(error)})
        return
    try:
        _unlink(name, folder, file)
    finally:
        os.close(folder)


def link_log(log_path: str, link_path: str) -> None:
    """Link a container's log where collectors search; without a log there is no link."""
    if not Path(log_path).exists():
        return
    link = Path(link_path)
    try:
        link.parent.mkdir(LOG_DIRECTORY_MODE, parents=True, exist_ok=True)
        link.symlink_to(log_path)
    except FileExistsError:
        return
    except OSError as error:
        logger.warning("log link failed", extra={"link": link_path, "error": str(error)})


def remove_logs(logs_root: str, log_path: str, link: str) -> None:
    """Remove a container's log with its rotated ones, and its link; "" if it can have none.

    Only below ``logs_root``: the path comes from the runtime.
    """
    if link and os.path.islink(link):  # noqa: PTH114 - a string as it is
        _unlink(link, None, link)
    try:
        folder, name = open_folder_of(logs_root, os.path.normpath(log_path))
    except OSError:
        return
    try:
        for file in os.listdir(folder):  # noqa: PTH208 - of a descriptor
            if file == name or file.startswith(f"{name}."):
                _unlink(file, folder, log_path)
    except OSError as error:
        logger.warning("logs cannot be removed", extra={"path": log_path, "error": str(error)})
    finally:
        os.close(folder)


def _unlink(name: str, folder: int | None, path: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("file cannot be removed", extra={"path": path, "error": str(error)})


# preStop hooks that are too large for an annotation

MAX_HOOK_BYTES = 2 << 20
"""Size limit of a hook's JSON; a whole pod of a real API server is smaller."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class HookLost(Exception):
    """The file of a hook is absent, or is not what was written."""


def keep_hook(root: str, uid: str, container: str, text: str) -> None:
    """Write a preStop hook's JSON that is too large for an annotation, unless it is there already.

    A runtime returns all annotations of all containers in one answer of bounded size: a handful of
    large ones would make every listing of the node fail. So the annotation names the file, by the
    digest of its content.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be written, or is larger than MAX_HOOK_BYTES.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_HOOK_BYTES:
        raise OSError(f"the preStop hook of container {container} has over {MAX_HOOK_BYTES} bytes")
    with made_container_directory(root, uid, container) as directory:
        path = directory / _hook_file(digest(text))
        if not path.is_file() or path.is_symlink():
            write_private(path, data)


def kept_hook(root: str, uid: str, container: str, name: str) -> api.LifecycleHandler:
    """Return the preStop hook that an annotation refers to. Raises HookLost."""
    if not _DIGEST.fullmatch(name):
        raise HookLost("the annotation does not name a file of this agent")
    try:
        path = container_directory(root, uid, container) / _hook_file(name)
        with os.fdopen(open_file(root, os.fspath(path)), "rb") as file:
            data = file.read(MAX_HOOK_BYTES + 1)
    except (UnsafeName, OSError) as error:
        raise HookLost(getattr(error, "strerror", None) or str(error)) from error
    if hashlib.sha256(data).hexdigest() != name:
        raise HookLost("its file holds something else")
    try:
        found: Any = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise HookLost("its file is not JSON") from error
    if not isinstance(found, dict):
        raise HookLost("its file is not a hook")
    return found  # type: ignore[return-value]


def _hook_file(name: str) -> str:
    return f"prestop-{name[:32]}.json"


# Records of stops under way

STOP_RECORD_FILE = "stop.json"
MAX_RECORD_BYTES = 4096


class StopRecords(Component):
    """Keeps records of the stops that this agent began, and reads those of earlier agents.

    Each is a small file in a container's directory. The next agent reads from it how much of the
    grace period is over, and whether the preStop hook has run. Must never fail a stop: a record
    that cannot be read or written counts as absent.
    """

    # The kubelet's root directory.
    root_dir: str

    def __post_init__(self) -> None:
        self._life = secrets.token_hex(8)
        self._lasting = Lasting()
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """One per container in use: a file is read and written in the order of the calls."""

    def now(self) -> float:
        """Return seconds of Linux's monotonic clock, which the records contain.

        It is never set, and all processes since the boot share it. A container lives no longer.
        """
        return steady_now()

    def new(self, container_id: str, *, deleting: bool) -> StopRecord:
        """Return the record of a stop that begins now."""
        return StopRecord(container_id, self._life, self.now(), deleting)

    async def earlier(self, uid: str, name: str, container_id: str) -> StopRecord | None:
        """Return the stop of that container that an earlier agent began, or None without one."""
        async with self._turn(uid, name):
            record = await asyncio.to_thread(self._read_record, uid, name)
        if record is None or record.container_id != container_id or record.life == self._life:
            return None
        return record

    async def write(self, uid: str, name: str, record: StopRecord) -> None:
        """Keep a record in place of the previous one, also if the caller is canceled meanwhile."""
        await self._lasting.finish(self._write_in_turn(uid, name, record))

    async def close(self) -> None:
        """Wait for the writes whose callers were canceled."""
        await self._lasting.close()

    async def _write_in_turn(self, uid: str, name: str, record: StopRecord) -> None:
        async with self._turn(uid, name):
            await asyncio.to_thread(self._write, uid, name, record)

    def _turn(self, uid: str, name: str) -> asyncio.Lock:
        return self._turns.setdefault((uid, name), asyncio.Lock())

    def _write(self, uid: str, name: str, record: StopRecord) -> None:
        text = json.dumps(
            {
                "containerID": record.container_id,
                "life": record.life,
                "began": record.began,
                "deleting": record.deleting,
                "hook": record.hook,
            }
        )
        try:
            with made_container_directory(self.root_dir, uid, name) as directory:
                # containers die with the machine
                write_whole(directory / STOP_RECORD_FILE, text, mode=0o600, flushed=False)
        except (UnsafeName, OSError) as error:
            logger.warning(
                "stop of a container not recorded; an agent that takes over begins it anew",
                extra={"pod_uid": uid, "container": name, "error": str(error)},
            )

    def _read_record(self, uid: str, name: str) -> StopRecord | None:
        try:
            path = container_directory(self.root_dir, uid, name) / STOP_RECORD_FILE
            with os.fdopen(open_file(self.root_dir, os.fspath(path)), "rb") as file:
                data = file.read(MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return None
        except (UnsafeName, OSError) as error:
            logger.warning(
                "record of a stop cannot be read; the stop begins anew",
                extra={"pod_uid": uid, "container": name, "error": str(error)},
            )
            return None
        return record_from_json(data) if len(data) <= MAX_RECORD_BYTES else None


def record_from_json(data: bytes) -> StopRecord | None:
    """Return the record in a file, or None if the file contains anything else."""
    try:
        found: Any = json.loads(data)
        began = float(found["began"])
        if not math.isfinite(began):
            return None
        return StopRecord(
            container_id=str(found["containerID"]),
            life=str(found["life"]),
            began=began,
            deleting=found["deleting"] is True,
            hook=HookState(found["hook"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
