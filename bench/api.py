"""The embedded API in a process of its own, so that the agent's cost is measured alone.

``python -m bench.api DIRECTORY NODE_NAME`` serves until it gets a signal. It creates the file
`ready` in its directory once the kubeconfigs have been written.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from kubeletpy_up.api import LocalApi

READY = "ready"


async def serve(directory: Path, node_name: str) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    api = LocalApi(directory, node_name, port=0)
    await api.start()
    (directory / READY).touch()
    try:
        await stop.wait()
    finally:
        await api.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
