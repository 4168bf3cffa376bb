"""Main processes of containers: what a bench needs so that a container exits by itself."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.remote.client import RemoteRuntime

PATIENCE = 20.0
INTO_WAIT = 0.1
"""Seconds from a shell's last child to its `wait`."""
_TERM = 1 << (signal.SIGTERM - 1)


async def main_processes(runtime: RemoteRuntime, containers: Sequence[str]) -> list[int]:
    """The host process ids of containers' main processes, once they handle SIGTERM.

    Before that they would miss it: signals without a handler are ignored by the first process of a
    namespace, and a shell that is not waiting yet reacts late.

    Raises:
        TimeoutError: one does not handle it.
    """
    pids = [await _main_process(runtime, container) for container in containers]
    async with asyncio.timeout(PATIENCE):
        # a process does not announce that it has set a handler
        while not all(_listens(pid) for pid in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(INTO_WAIT)
    return pids


async def _main_process(runtime: RemoteRuntime, container: str) -> int:
    answer = await runtime.container_status(container, verbose=True)
    return int(json.loads(answer.info["info"])["pid"])


def _listens(pid: int) -> bool:
    """Whether a shell has set its trap and started what it waits for."""
    if not Path(f"/proc/{pid}/task/{pid}/children").read_text().strip():
        return False
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) & _TERM)
    return False
