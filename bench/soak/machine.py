"""Faults of the machine during a soak: no disk space, inodes, descriptors, threads or CPU time.

Those of the agent's process hold it: it is not killed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from bench.stand import Stand
from tools.env.containerd import Containerd
from tools.env.machine_faults import no_descriptors, no_inodes, no_room, no_threads, standing_still

Fault = Callable[[float], Awaitable[None]]
"""A fault; its argument is the duration in seconds."""


def machine_faults(stand: Stand, agent: asyncio.Lock) -> dict[str, Fault]:
    """Each kind of fault by its name; ``agent`` is the lock for killing or starting the agent."""
    return {
        "no room": partial(_of_files, no_room, stand.root_dir),
        "no inodes": partial(_of_files, no_inodes, stand.root_dir),
        "no descriptors": partial(_of_process, no_descriptors, stand, agent),
        "no threads": partial(_of_process, no_threads, stand, agent),
        "agent paused": partial(_of_process, standing_still, stand, agent),
        "containerd paused": partial(_of_runtime, stand.agent_runtime),
    }


async def _of_files(
    fault: Callable[[Path], AbstractContextManager[None]], root: Path, seconds: float
) -> None:
    await _during(fault(root), seconds)


async def _of_process(
    fault: Callable[[int], AbstractContextManager[None]],
    stand: Stand,
    agent: asyncio.Lock,
    seconds: float,
) -> None:
    async with agent:
        if not stand.agent_process.died():
            with contextlib.suppress(ProcessLookupError):  # it died of it: the guard reports that
                await _during(fault(stand.agent_pid), seconds)


async def _during(fault: AbstractContextManager[None], seconds: float) -> None:
    await asyncio.to_thread(fault.__enter__)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(fault.__exit__, None, None, None)


async def _of_runtime(runtime: Containerd, seconds: float) -> None:
    await asyncio.to_thread(runtime.pause)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(runtime.resume)
