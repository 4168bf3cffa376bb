"""Calls that a stuck containerd waits for, for the report of a test.

containerd writes the stacks of its goroutines to its log when it gets SIGUSR1; the kernel reports
the state of its shims' child processes.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tools.env.process import command_lines
from tools.env.waiting import NotReadyError, wait_until

_CALLS = re.compile(r"\b(StopPodSandbox|RemovePodSandbox|StopContainer)\b")
_END = b"END goroutine stack dump"
_MAX_STACKS = 6


def report(pid: int, log: Path, directory: Path) -> str:
    """The goroutines of calls that end pods, and the processes below the shims of a containerd.

    ``log``: of the process ``pid``; ``directory``: a shim that names it is one of its own.
    """
    return "\n".join([*_stacks(pid, log), *_processes(str(directory))])


def _stacks(pid: int, log: Path) -> list[str]:
    begin = log.stat().st_size
    os.kill(pid, signal.SIGUSR1)
    try:
        text = wait_until(lambda: _dump(log, begin), "containerd's stacks", timeout=5)
    except NotReadyError as error:
        return [str(error)]
    stacks = [stack for stack in text.split("\n\n") if _CALLS.search(stack)]
    return stacks[:_MAX_STACKS] or ["no goroutine ends a pod"]


def _dump(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        found = file.read()
    if _END not in found:
        return ""
    return found.decode(errors="replace").replace("\\n", "\n").replace("\\t", "\t")


def _processes(directory: str) -> list[str]:
    shims = {
        pid
        for pid, line in command_lines()
        if "-shim-" in "".join(line[:1]) and _names(line, directory)
    }
    return [_seen(pid, line) for pid, line in command_lines() if {pid, _parent(pid)} & shims]


def _names(line: list[str], directory: str) -> bool:
    return any(part.startswith(directory + "/") for part in line)


def _parent(pid: int) -> int:
    found = re.search(r"^PPid:\s+(\d+)", _read(pid, "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def _seen(pid: int, line: list[str]) -> str:
    state = re.search(r"^State:\s+(.+)", _read(pid, "status"), re.MULTILINE)
    stack = " < ".join(each.split()[-1] for each in _read(pid, "stack").splitlines())
    return f"{pid} {' '.join(line)[:150]}: {state[1] if state else 'gone'}; {stack}"


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
