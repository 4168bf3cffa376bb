"""Processes that we start: own session, log file, pid file, orderly end. Nothing else is killed.

A process outlives the program that started it (the private containerd of up.sh must). It is
identified by its pid file together with its start time. No later process with that pid has that
start time, not even after a reboot.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from tools.env.waiting import NotReadyError, wait_until


class Daemon:
    """A background program with its log and pid file in `directory`."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._pidfile = directory / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, or None when it does not run."""
        if self._child is not None:
            self._child.poll()
        return read_pid(self._pidfile)

    def start(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Start it in its own session, output appended to its log, so that no Ctrl-C reaches it."""
        with self._open_log() as log:
            self._child = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env) if env is not None else None,
                start_new_session=True,
                cwd="/",
            )
        write_pid(self._pidfile, self._child.pid)

    def _open_log(self) -> BinaryIO:
        """Errors of a runtime may hold values of secrets: nobody else reads its log."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.log, flags, 0o600)
        os.fchmod(descriptor, 0o600)  # also of one that is there
        return os.fdopen(descriptor, "ab")

    def adopt(self, argv: Sequence[str | Path]) -> bool:
        """Take a process that runs with these arguments, whose pid file was lost, for this one."""
        desired = [str(a) for a in argv[1:]]
        program = Path(argv[0]).name
        for pid, line in command_lines():
            if line[1:] == desired and Path(line[0]).name == program:
                write_pid(self._pidfile, pid)
                return True
        return False

    def died(self) -> str | None:
        """Why waiting for it is pointless: it is not running; with the end of its log."""
        if self.pid is not None:
            return None
        return f"{self.name} is not running; the end of {self.log}:\n{self.log_tail()}"

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def kill(self, number: int = signal.SIGKILL, timeout: float = 20.0) -> None:
        """Send one signal and wait for the end. Raises NotReadyError if it lives on."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, number)
        wait_until(lambda: self.pid is None, f"the end of {self.name} (pid {pid})", timeout=timeout)

    def stop(self, timeout: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after `timeout` seconds."""
        try:
            self.kill(signal.SIGTERM, timeout)
        except NotReadyError:
            self.kill(signal.SIGKILL)
        self._pidfile.unlink(missing_ok=True)


def read_pid(path: Path) -> int | None:
    """The process of a pid file, None when it does not run, or the file is not readable."""
    try:
        number, started = path.read_text().split()
        pid = int(number)
    except (OSError, ValueError):
        return None
    return pid if start_time(pid) == started else None


def write_pid(path: Path, pid: int) -> None:
    """Write a pid file atomically."""
    write_whole(path, f"{pid} {start_time(pid)}")


def write_whole(path: Path, text: str) -> None:
    """Replace a file: whoever reads it, also after a power cut, has the old text or the new."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_time(pid: int) -> str | None:
    """When a process started, in ticks since which boot; None if it has exited or is a zombie.

    A killed process of many threads is a zombie as soon as its first thread has ended, while the
    others still hold its files. The process ends with its last thread.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, threads, started = fields[0], int(fields[17]), fields[19]
    return None if state == "Z" and threads <= 1 else f"{started}@{_boot()}"


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; False if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    handlers = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(handlers.split()[1], 16) >> (number - 1) & 1)


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """(pid, argv) of every process on the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                raw = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            yield int(entry.name), raw.decode(errors="replace").split("\0")[:-1]


def kill_all(pids: Sequence[int]) -> None:
    """SIGKILL these and wait until all have exited."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(
        lambda: all(start_time(pid) is None for pid in pids), f"the end of {list(pids)}", timeout=20
    )


def run(
    *argv: str | Path,
    timeout: float = 120.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program to its end and return its output. Raises CommandError with its output."""
    try:
        done = subprocess.run(
            [str(a) for a in argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=cwd,
            env=env,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]} is not installed") from error
    if done.returncode != 0:
        stated = (done.stderr or done.stdout).strip()[-2000:]
        command = " ".join(str(a) for a in argv)
        raise CommandError(f"`{command}` exited with {done.returncode}: {stated}")
    return done.stdout


class CommandError(RuntimeError):
    """A program could not be run or failed; the text is its command line and its output."""
