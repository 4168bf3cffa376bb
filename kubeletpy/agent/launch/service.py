"""Notifies the service manager: READY=1 when the agent runs, WATCHDOG=1 while it is healthy.

Source: sd_notify(3), sd_watchdog_enabled(3); the kubelet notifies a watchdog every half period, and
only while its health checks pass.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, MutableMapping

from kubeletpy.agent.launch.errors import LaunchError

LEAST_S = 1.0
"""A watchdog's period must be longer, as the kubelet requires."""

log = logging.getLogger(__name__)


class ServiceManager:
    """The manager that started this process, if it requests notifications."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Removes the variables from the environment: they are not for programs that we start.

        Raises LaunchError if the watchdog's period is not a number, or too short.
        """
        self._path = environment.pop("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog(environment)

    def notify(self, state: str) -> None:
        """Send a state such as ``READY=1``; never blocks, and a failure is logged."""
        if not self._path:
            return
        address = f"\0{self._path[1:]}" if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.connect(address)
                sock.send(state.encode())
        except OSError as error:
            log.warning(
                "the service manager could not be notified",
                extra={"state": state, "socket": self._path, "why": str(error)},
            )

    async def keep_alive(self, checks: Mapping[str, Callable[[], str]]) -> None:
        """Notify the watchdog while everything is healthy, until cancelled.

        ``checks`` return what is wrong, or an empty string.
        """
        while True:
            failed = {name: why for name, check in checks.items() if (why := check())}
            if failed:
                log.error("not healthy: the watchdog is not notified", extra={"why": str(failed)})
            else:
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)


def _watchdog(environment: MutableMapping[str, str]) -> float:
    """The watchdog's period in seconds; 0 when there is none, or it is another process's."""
    text, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not text or (pid and pid != str(os.getpid())):
        return 0.0
    if not text.isdecimal() or int(text) <= LEAST_S * 1_000_000:
        raise LaunchError(
            f"WATCHDOG_USEC {text}: the watchdog's period (WatchdogSec) must be more than "
            f"{LEAST_S:g} s"
        )
    return int(text) / 1_000_000
