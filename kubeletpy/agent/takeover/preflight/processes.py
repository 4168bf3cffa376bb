"""The kubelets that run on this machine, from /proc. Must never send a signal to one."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletpy.agent.takeover.preflight.choice import Process
from kubeletpy.agent.takeover.preflight.command_line import is_kubelet


def find_kubelets(proc: Path = Path("/proc")) -> list[Process]:
    """All running kubelets, by process id; those that end meanwhile are left out."""
    pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal())
    found = (read_process(pid, proc) for pid in pids)
    return [each for each in found if each is not None and is_kubelet(each.command[0])]


def read_process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """A process, whatever its program; None: there is no such process, or it has no arguments."""
    directory = proc / str(pid)
    try:
        words = (directory / "cmdline").read_bytes().split(b"\0")[:-1]
        command = tuple(os.fsdecode(word) for word in words)
        if not command:
            return None
        return Process(
            pid,
            command,
            _link(directory / "cwd"),
            _unit((directory / "cgroup").read_text(errors="replace")),
            _contained(directory, proc),
        )
    except OSError:
        return None


def _link(path: Path) -> str:
    try:
        return os.fspath(path.readlink())
    except OSError:
        return "/"


def _unit(cgroups: str) -> str:
    """The innermost service of a process, from its /proc/PID/cgroup."""
    for line in cgroups.splitlines():
        for part in reversed(line.rpartition(":")[2].split("/")):
            if part.endswith(".service"):
                return part
    return ""


def _contained(directory: Path, proc: Path) -> bool:
    try:
        return not os.path.samestat((directory / "root").stat(), (proc / "self" / "root").stat())
    except OSError:
        return False
