"""Processes that we start: own session, log file, pid file, orderly end. Nothing else is killed.

A process outlives the program that started it (the private containerd of up.sh must), so it is
known by its pid file together with its start time, which no later process with that pid shares.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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
        try:
            pid, started = self._pidfile.read_text().split()
        except (OSError, ValueError):
            return None
        if self._child is not None:
            self._child.poll()
        return int(pid) if start_time(int(pid)) == started else None

    def start(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Start it in its own session, output appended to its log, so that no Ctrl-C reaches it."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env) if env is not None else None,
                start_new_session=True,
                cwd="/",
            )
        self._pidfile.write_text(f"{self._child.pid} {start_time(self._child.pid)}")

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


def start_time(pid: int) -> str | None:
    """When a process started, in ticks since boot; None if it is gone or only a zombie.

    A killed process of many threads is a zombie as soon as its first thread has ended, while the
    others still hold its files: only the last thread's end is the process's.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, threads, started = fields[0], int(fields[17]), fields[19]
    return None if state == "Z" and threads <= 1 else started


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
    """SIGKILL these and wait until all are gone."""
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
    """Run a program to its end and return its output. Raises CommandError with what it said."""
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
        said = (done.stderr or done.stdout).strip()[-2000:]
        command = " ".join(str(a) for a in argv)
        raise CommandError(f"`{command}` exited with {done.returncode}: {said}")
    return done.stdout


class CommandError(RuntimeError):
    """A program could not be run or failed; the text is its command line and what it said."""
