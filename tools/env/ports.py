"""TCP ports for the programs that tests start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(preferred: int | None = None) -> int:
    """A TCP port that is free now; ``preferred`` if that is free.

    The kernel does not choose it for an outgoing connection before a program listens on it: it is
    below the ephemeral ports.
    """
    first = int(_EPHEMERAL.read_text().split()[0])
    while True:
        port = preferred or random.randrange(first // 2, first)
        preferred = None
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
