"""A virtual node that is a process of this machine: what user-mode Linux and QEMU have in common.

The serial line for requests is one end of a socket pair; the console goes to a file. A power cut is
``kill -9`` of the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tools.env.waiting import NotReadyError, wait_until
from tools.lab import requests
from tools.lab.requests import Done, GuestError

_SLACK = 30.0
"""Seconds that an answer may take beyond the command's own bound, on a busy machine."""
_EXCHANGE = "/run/lab-exchange"
"""Where the node has the directory for files that are copied."""


class HostedMachine(ABC):
    """Implements :class:`tools.lab.machine.Machine`, for a kernel that a subclass starts."""

    boot_timeout: float
    """Seconds that a boot may take on a busy machine."""

    def __init__(self, directory: Path, within: Sequence[str]) -> None:
        """``directory`` takes its console; ``within`` starts the process's command line."""
        self._directory = directory
        self._within = within
        self._process: subprocess.Popen[bytes] | None = None
        self._off = threading.Event()
        self._line: socket.socket | None = None
        self._received = b""
        self._exchange_mounted = False
        self._exchange = directory / "exchange"
        self._exchange.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def _command(self, serial: int) -> Sequence[str]:
        """The command line; ``serial`` is the descriptor of the line for requests.

        Standard output and error go to the console's file. Raises CommandError.
        """

    @abstractmethod
    def _mount_command(self, directory: Path, target: str) -> Sequence[str]:
        """The command in the node that mounts a directory of this machine. Raises GuestError."""

    @property
    def console(self) -> str:
        """All that was written to its console, also by kernels before."""
        return self._console_path.read_text(errors="replace")

    @property
    def _console_path(self) -> Path:
        return self._directory / "console.log"

    def boot(self, timeout: float | None = None) -> None:
        """Switch it on, and wait until it takes commands. Raises NotReadyError."""
        self._switch_on()
        self._await_ready(self.boot_timeout if timeout is None else timeout)

    def _switch_on(self) -> subprocess.Popen[bytes]:
        """Start the kernel's process; ``_off`` is set once it is forgotten."""
        assert self._process is None, "it runs already"
        self._off = threading.Event()
        self._line, theirs = socket.socketpair()
        self._received = b""
        with theirs, self._console_path.open("ab") as console:
            self._process = subprocess.Popen(
                [*self._within, *self._command(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return self._process

    def _await_ready(self, timeout: float) -> None:
        self._exchange_mounted = False
        try:
            while b'"ready"' not in self._read_line(timeout):
                pass
        except GuestError as error:
            self.cut_power()
            raise NotReadyError(f"no boot: {error}; see {self._console_path}") from error

    def processor_seconds(self) -> float:
        """Processor time of this machine that it has taken since it was switched on."""
        assert self._process is not None, "it is off"
        ticks = 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # the process has ended
                _state, _parent, group, *fields = file.read_text().rpartition(")")[2].split()
                if int(group) == self._process.pid:  # with its children that have ended
                    ticks += sum(map(int, fields[8:12]))
        return ticks / os.sysconf("SC_CLK_TCK")

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
        """Within the node, which sees a directory of this machine: no file goes over the line."""
        if not self._exchange_mounted:
            self.mount_host(self._exchange, _EXCHANGE)
            self._exchange_mounted = True
        done = self.run("cp", "-p", source, target, timeout=600)
        if done.status:
            raise GuestError(f"{source} was not copied to {target}: {done.output}")

    def mount_host(self, directory: Path, target: str) -> None:
        """Mount a directory of this machine in the node. Raises GuestError."""
        parts = self._mount_command(directory, target)
        done = self.run("sh", "-ec", 'mkdir -p "$1"; shift; exec "$@"', "mount", target, *parts)
        if done.status:
            raise GuestError(f"{directory} was not mounted at {target}: {done.output}")

    def power_off(self, timeout: float = 120.0) -> None:
        """Shut it down in order. Raises NotReadyError."""
        process, line = self._process, self._line
        if process is None or line is None:
            return
        # no answer is waited for: it may go off before it has sent one
        line.sendall(requests.run_request(("systemctl", "--no-block", "poweroff"), 60.0))
        wait_until(lambda: process.poll() is not None, "power off", timeout=timeout)
        self._forget()

    def reboot(self, timeout: float = 600.0) -> None:
        """Reboot it in order; the process stays the same. Raises NotReadyError."""
        assert self._line is not None, "it is off"
        self._line.sendall(requests.run_request(("systemctl", "--no-block", "reboot"), 60.0))
        self._await_ready(timeout)

    def cut_power(self) -> None:
        """Kill the kernel, with the processes that it has on this machine."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._forget()

    def pause(self) -> None:
        """Stop its processors; its clock goes on. It answers nothing until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None, "it is off"
        self._process.send_signal(number)

    def _forget(self) -> None:
        self._process = None
        self._off.set()
        if self._line is not None:
            self._line.close()
            self._line = None

    def _ask(self, request: bytes, timeout: float) -> bytes:
        answer = b""
        for piece in requests.pieces(request):
            if self._line is None:
                raise GuestError("the node is off")
            self._line.settimeout(timeout + _SLACK)
            try:
                self._line.sendall(piece)
            except OSError as error:
                raise GuestError(f"the node does not take requests: {error}") from error
            answer = self._read_line(timeout + _SLACK)
        return answer

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
