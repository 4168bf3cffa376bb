"""TCP ports for the programs that tests start."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_chosen: set[int] = set()
"""Ports that this process has chosen: their programs may be between two starts."""


def free_port(preferred: int | None = None) -> int:
    """A TCP port that is free now; ``preferred`` if that is free.

    The kernel does not choose it for an outgoing connection before a program listens on it: it is
    below the ephemeral ports. Neither does another worker of pytest-xdist, nor this process again.
    """
    first = int(_EPHEMERAL.read_text().split()[0])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        port = preferred or random.randrange(first // 2 + worker, first, workers)
        if port in _chosen and port != preferred:
            continue
        preferred = None
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        _chosen.add(port)
        return port
