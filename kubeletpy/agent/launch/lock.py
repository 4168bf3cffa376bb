"""--lock-file: one agent at a time holds it, and may exit as soon as another one requests it.

Source: docs/reference/flags.csv: lock-file, exit-on-lock-contention. It is a kernel lock (flock):
it ends with the process, whatever happens to the file.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kubeletpy.agent.launch.errors import LaunchError
from kubeletpy.base.host.inotify import DirectoryWatch
from kubeletpy.base.tasks import background, until_one_ends
from kubeletpy.config import NodeFlags

RETRY_S = 1.0

log = logging.getLogger(__name__)


async def run_locked(flags: NodeFlags, running: Coroutine[Any, Any, None]) -> None:
    """Run while holding the lock; wait for it first.

    With --exit-on-lock-contention it ends, as if cancelled, when another process opens the file.
    Raises LaunchError if the file can't be created or watched.
    """
    path = Path(flags.lock_file)
    with ExitStack() as stack:
        try:
            await _lock_file(path, stack)
            desired = _watch(path, stack) if flags.exit_on_lock_contention else asyncio.Event()
        except BaseException:
            running.close()
            raise
        async with background(running) as agent, background(desired.wait()) as contention:
            await until_one_ends(agent, contention)
            if contention.done():
                extra = {"path": str(path)}
                log.info("another process requests the lock file: exiting", extra=extra)
        if not agent.cancelled():
            agent.result()


async def _lock_file(path: Path, stack: ExitStack) -> None:
    try:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LaunchError(f"--lock-file {path}: {error}") from error
    stack.callback(os.close, fd)
    stated = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not stated:
                log.warning(
                    "waiting for the lock file: another process holds it", extra={"path": str(path)}
                )
            stated = True
            await asyncio.sleep(RETRY_S)
        except OSError as error:
            raise LaunchError(f"--lock-file {path}: {error}") from error
        else:
            return


def _watch(path: Path, stack: ExitStack) -> asyncio.Event:
    desired = asyncio.Event()
    watch = DirectoryWatch(path, desired.set, opened=True)
    if not watch.start():
        raise LaunchError(f"--lock-file {path} can't be watched (inotify)")
    stack.callback(watch.close)
    return desired
