"""What has to be known of a container to have it end by itself."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from kubeletpy.remote.client import RemoteRuntime

PATIENCE = 20.0
_TERM = 1 << (signal.SIGTERM - 1)


async def main_process(runtime: RemoteRuntime, container: str) -> int:
    """The process id, on the host, of a container's first process, once it listens to SIGTERM.

    Before, it would not hear it: for the first process of a PID namespace no default action is taken.

    Raises:
        TimeoutError: it does not listen.
    """
    answer = await runtime.container_status(container, verbose=True)
    pid = int(json.loads(answer.info["info"])["pid"])
    async with asyncio.timeout(PATIENCE):
        # a process tells nobody that it has set a handler
        while not _listens(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return pid


def _listens(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) & _TERM)
    return False
