"""A virtual node under user-mode Linux: a kernel that is a process of this machine.

The serial line for requests is one end of a socket pair; the console goes to a file. A power cut is
``kill -9`` of the kernel.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.env.waiting import NotReadyError, wait_until
from tools.lab import requests
from tools.lab.recipe import kernel_command
from tools.lab.requests import Done, GuestError

_SLACK = 30.0
"""Seconds that an answer may take beyond the command's own bound, on a busy machine."""

SHOW_CLOCK = (
    "{ cat /proc/cpuinfo; echo 'cpu MHz : 2000.0'; } > /tmp/cpuinfo"
    " && mount --bind /tmp/cpuinfo /proc/cpuinfo"
)
"""A script: this kernel shows no clock speed, without which a Go kubelet does not start."""
_EXCHANGE = "/run/lab-exchange"


class UserModeLinux:
    """Implements :class:`tools.lab.machine.Machine`."""

    def __init__(
        self,
        disk: Path,
        directory: Path,
        *,
        memory_mib: int = 2048,
        more: Sequence[str] = (),
        within: Sequence[str] = (),
    ) -> None:
        """``directory`` takes its console and what it writes to its disk; it may boot again.

        ``within`` starts the kernel's command line, as :attr:`tools.lab.network.Network.inside`.
        """
        self._disk = disk
        self._directory = directory
        self._memory_mib = memory_mib
        self._more = more
        self._within = within
        self._kernel: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._received = b""
        self._exchange = directory / "exchange"
        self._exchange.mkdir(parents=True, exist_ok=True)

    @property
    def console(self) -> str:
        """All that was written to its console, also by kernels before."""
        return self._console_path.read_text(errors="replace")

    @property
    def _console_path(self) -> Path:
        return self._directory / "console.log"

    def boot(self, timeout: float = 300.0) -> None:
        """Switch it on, and wait until it takes commands. Raises NotReadyError."""
        assert self._kernel is None, "it runs already"
        ours, theirs = socket.socketpair()
        command = kernel_command(
            str(self._disk),
            str(self._directory / "overlay"),
            str(self._directory),
            memory_mib=self._memory_mib,
            serial=theirs.fileno(),
            more=self._more,
        )
        with theirs, self._console_path.open("ab") as console:
            self._kernel = subprocess.Popen(
                [*self._within, *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._line, self._received = ours, b""
        self._await_ready(timeout)

    def _await_ready(self, timeout: float) -> None:
        try:
            while b'"ready"' not in self._read_line(timeout):
                pass
        except GuestError as error:
            self.cut_power()
            raise NotReadyError(f"no boot: {error}; see {self._console_path}") from error

    def run(self, *command: str, timeout: float = 60.0) -> Done:
        """Run a command. Raises GuestError."""
        answer = self._ask(requests.run_request(command, timeout), timeout)
        return requests.parse_done(answer)

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file to the node, with its mode. Raises GuestError."""
        shutil.copy(source, self._exchange / "file")
        self._copy(f"{_EXCHANGE}/file", target)

    def copy_out(self, source: str, target: Path) -> None:
        """Copy a file from the node. Raises GuestError."""
        self._copy(source, f"{_EXCHANGE}/file")
        shutil.copy(self._exchange / "file", target)

    def _copy(self, source: str, target: str) -> None:
        """Within the node, which sees a directory of this machine: serial lines lose long lines."""
        script = 'mountpoint -q "$1" || { mkdir -p "$1" && mount -t hostfs -o "$2" none "$1"; }'
        words = ("sh", "-ec", f'{script}; cp -p "$3" "$4"', "copy", _EXCHANGE)
        done = self.run(*words, str(self._exchange), source, target)
        if done.status:
            raise GuestError(f"{source} was not copied to {target}: {done.output}")

    def power_off(self, timeout: float = 120.0) -> None:
        """Shut it down in order. Raises NotReadyError."""
        kernel, line = self._kernel, self._line
        if kernel is None or line is None:
            return
        # no answer is waited for: it may go off before it has sent one
        line.sendall(requests.run_request(("systemctl", "--no-block", "poweroff"), 60.0))
        wait_until(lambda: kernel.poll() is not None, "power off", timeout=timeout)
        self._forget()

    def reboot(self, timeout: float = 600.0) -> None:
        """Reboot it in order; the kernel's process executes itself. Raises NotReadyError."""
        assert self._line is not None, "it is off"
        self._line.sendall(requests.run_request(("systemctl", "--no-block", "reboot"), 60.0))
        self._await_ready(timeout)

    def cut_power(self) -> None:
        """Kill the kernel, with the processes that it has on this machine."""
        if self._kernel is None:
            return
        os.killpg(self._kernel.pid, signal.SIGKILL)
        self._kernel.wait()
        self._forget()

    def _forget(self) -> None:
        self._kernel = None
        if self._line is not None:
            self._line.close()
            self._line = None

    def _ask(self, request: bytes, timeout: float) -> bytes:
        if self._line is None:
            raise GuestError("the node is off")
        self._line.settimeout(timeout + _SLACK)
        try:
            self._line.sendall(request)
        except OSError as error:
            raise GuestError(f"the node does not take requests: {error}") from error
        return self._read_line(timeout + _SLACK)

    def _read_line(self, timeout: float) -> bytes:
        assert self._line is not None
        self._line.settimeout(timeout)
        while b"\n" not in self._received:
            try:
                more = self._line.recv(1 << 16)
            except OSError as error:
                raise GuestError(f"the node does not answer: {error}") from error
            if not more:
                raise GuestError("the node went off")
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line
