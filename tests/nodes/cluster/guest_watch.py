"""Runs inside a virtual node: waits until pods are Ready, by the agent's own account.

``guest_watch.py NAMESPACE SECONDS NAME …`` prints when they all were, in seconds since containerd
ran, and how long the processor was idle since the boot. After SECONDS it shows what it waits for,
and fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kubeletpy.cli import agent_socket

INTERVAL_S = 1.0
RUNTIME_UP = ("systemctl", "show", "--value", "-p", "ActiveEnterTimestampMonotonic", "containerd")


def explained(namespace: str, name: str) -> dict[str, Any]:
    """The agent's explanation of a pod; empty while it has none."""
    try:
        found: dict[str, Any] = agent_socket.get_json(
            agent_socket.DEFAULTS[0], "pods", namespace, name
        )
    except (agent_socket.NoAgent, agent_socket.NoSuchPod):
        return {}
    return found


def watch(namespace: str, seconds: float, names: list[str]) -> float:
    """Wait; the answer is of the clock that systemd has."""
    end = time.monotonic() + seconds
    for name in names:
        while not (found := explained(namespace, name)).get("ready"):
            if time.monotonic() > end:
                sys.exit(f"{name} is not Ready: {json.dumps(found)[:4000]}")
            time.sleep(INTERVAL_S)
    return time.monotonic()


if __name__ == "__main__":
    ready = watch(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
    idle = Path("/proc/uptime").read_text().split()[1]
    print(ready - int(subprocess.check_output(RUNTIME_UP)) / 1e6, idle)
