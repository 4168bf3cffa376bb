"""The records of stops under way: a small file in a container's directory.

An agent that takes over reads how much of the grace period is over and whether the preStop hook has
run. Must never delay or fail a stop: what cannot be read or written counts as absent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
from typing import Any

from kubeletpy.base.clock import steady_now
from kubeletpy.base.host.files import open_file, write_whole
from kubeletpy.runtime_manager.act.container_files import (
    container_directory,
    made_container_directory,
)
from kubeletpy.runtime_manager.names.log_paths import UnsafeName
from kubeletpy.runtime_manager.plan.resume_stop import HookState, StopRecord

logger = logging.getLogger(__name__)

FILE = "stop.json"
MAX_BYTES = 4096


class StopRecords:
    """Keeps the records of one agent's process, and reads those of earlier ones."""

    def __init__(self, root_dir: str) -> None:
        """``root_dir``: the kubelet's root directory."""
        self._root = root_dir
        self._life = secrets.token_hex(8)

    def now(self) -> float:
        """Seconds, as the records have them: of Linux's monotonic clock.

        Nobody sets it, and all processes since the boot share it. A container lives no longer.
        """
        return steady_now()

    def new(self, container_id: str, *, deleting: bool) -> StopRecord:
        """A stop that begins now."""
        return StopRecord(container_id, self._life, self.now(), deleting)

    async def earlier(self, uid: str, name: str, container_id: str) -> StopRecord | None:
        """The stop of that container that an earlier agent began; None: there is none."""
        record = await asyncio.to_thread(self._read_record, uid, name)
        if record is None or record.container_id != container_id or record.life == self._life:
            return None
        return record

    async def write(self, uid: str, name: str, record: StopRecord) -> None:
        """Keep a record, in place of the one before."""
        await asyncio.to_thread(self._write, uid, name, record)

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
            with made_container_directory(self._root, uid, name) as directory:
                # containers die with the machine
                write_whole(directory / FILE, text, mode=0o600, flushed=False)
        except (UnsafeName, OSError) as error:
            logger.warning(
                "stop of a container not recorded; an agent that takes over begins it anew",
                extra={"pod_uid": uid, "container": name, "error": str(error)},
            )

    def _read_record(self, uid: str, name: str) -> StopRecord | None:
        try:
            path = container_directory(self._root, uid, name) / FILE
            with os.fdopen(open_file(self._root, os.fspath(path)), "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except (UnsafeName, OSError) as error:
            logger.warning(
                "record of a stop cannot be read; the stop begins anew",
                extra={"pod_uid": uid, "container": name, "error": str(error)},
            )
            return None
        return record_from_json(data) if len(data) <= MAX_BYTES else None


def record_from_json(data: bytes) -> StopRecord | None:
    """A record as it was written; None: it is something else."""
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
