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

    def boot(self, timeout: float | None = None) -> None:
        """Switch it on, and wait until it takes commands. Raises NotReadyError.

        The default timeout is what this kind of machine needs.
        """
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

    def mount_host(self, directory: Path, target: str) -> None:
        """Mount a directory of this machine in the node. Raises GuestError."""
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

    def pause(self) -> None:
        """Stop its processors; its clock goes on. It answers nothing until `resume`."""
        ...

    def resume(self) -> None:
        """Continue after `pause`."""
        ...
