"""Runs inside a virtual node: the embedded API by itself, so that the agent is a unit of its own.

``guest_api.py DIRECTORY [GATE …]`` notifies systemd when it serves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from kubeletpy_up.api import LocalApi


async def serve(directory: Path, gates: list[str]) -> None:
    """Serve until SIGTERM."""
    api = LocalApi(
        directory / "api",
        socket.gethostname(),
        volumes_dir=directory / "volumes",
        single_node=True,
        feature_gates=gates,
    )
    await api.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await api.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))
