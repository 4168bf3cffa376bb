"""The interface of a virtual node, whatever runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tools.lab.requests import Done


class Machine(Protocol):
    """A virtual node. Times are in seconds."""

    @property
    def console(self) -> str:
        """All that was written to its console."""
        ...

    def boot(self, timeout: float = 300.0) -> None:
        """Switch it on, and wait until it takes commands. Raises NotReadyError."""
        ...

    def run(self, *command: str, timeout: float = 60.0) -> Done:
        """Run a command. Raises GuestError: it does not end, or the node does not answer."""
        ...

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file to the node. Raises GuestError."""
        ...

    def copy_out(self, source: str, target: Path) -> None:
        """Copy a file from the node. Raises GuestError."""
        ...

    def power_off(self, timeout: float = 120.0) -> None:
        """Shut it down in order. Raises NotReadyError."""
        ...

    def reboot(self, timeout: float = 600.0) -> None:
        """`systemctl reboot`, and wait until it takes commands again. Raises NotReadyError."""
        ...

    def cut_power(self) -> None:
        """Stop it at once; data that it has not written to its disk is lost."""
        ...
