"""The kubelets of this machine: systemd units with their files on the disk, and processes.

Unit files are those that ``systemctl cat`` shows, those of generators included; systemd need not
run. Must never start a program, nor signal a process.

Source: systemd.unit(5): unit load path, drop-ins.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from kubeletpy.agent.takeover.preflight.checks import Process
from kubeletpy.agent.takeover.preflight.findings import KubeletFound
from kubeletpy.agent.takeover.preflight.unit_file import (
    PREFIXES,
    UnitError,
    is_kubelet,
    kubelet_command,
    read_environment_file,
    read_service,
)

LOAD_PATH = (
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
)
"""Directories of units, those that win first."""
MAX_BYTES = 1 << 20


class UnitMissing(Exception):
    """There is no such unit, or it is masked; the message names it."""


def read_unit(name: str, root: Path = Path("/")) -> KubeletFound:
    """The kubelet that a unit starts.

    Args:
        name: such as ``kubelet.service``.
        root: of the machine's file system.

    Raises:
        UnitMissing: there is no such unit, or it is masked.
        UnitError: one of its files can't be read or understood, or it starts no kubelet.
    """
    unit = _require_unit(name, root)
    paths = [unit, *_drop_ins(name, root)]
    texts = [(str(path), _read(path)) for path in paths]
    service = read_service(texts, _specifiers(name))
    environment: list[Mapping[str, str]] = []
    for text in service.environment_files:
        for path in _environment_paths(text.removeprefix("-"), root):
            if path.exists() or not text.startswith("-"):
                environment.append(read_environment_file(str(path), _read(path)))
                paths.append(path)
    command = kubelet_command(service, environment, f"unit {name}")
    return KubeletFound(
        f"unit {name}",
        command[0],
        command[1:],
        service.directory if service.directory.startswith("/") else "/",
        tuple(map(str, paths)),
    )


def exec_start(name: str, without: str, root: Path = Path("/")) -> str:
    """The text of a unit's ExecStart as its files have it, variables and all.

    Args:
        name: such as ``kubelet.service``.
        without: the file name of a drop-in that is left out.
        root: of the machine's file system.

    Raises:
        UnitMissing: there is no such unit, or it is masked.
        UnitError: one of its files can't be read or understood, or it has no ExecStart.
    """
    unit = _require_unit(name, root)
    paths = [unit, *(each for each in _drop_ins(name, root) if each.name != without)]
    texts = [(str(path), _read(path)) for path in paths]
    commands = read_service(texts, None).commands
    if not commands:
        raise UnitError(f"unit {name}: it has no ExecStart")
    return commands[-1]


def kubelet_units(root: Path = Path("/")) -> list[str]:
    """Names of the units that start a kubelet, without those that can't be read."""
    names: dict[str, None] = {}
    for directory in _directories(root):
        for path in sorted(directory.glob("*.service")):
            names.setdefault(path.name)
    return [name for name in names if _starts_kubelet(name, root)]


def _starts_kubelet(name: str, root: Path) -> bool:
    unit = _unit_path(name, root)
    if unit is None or _masked(unit):
        return False
    try:
        if b"kubelet" not in unit.read_bytes()[:MAX_BYTES]:
            return False
        commands = read_service([(str(unit), _read(unit))], _specifiers(name)).commands
    except (OSError, UnitError):
        return False
    return any(is_kubelet(text.lstrip(PREFIXES).partition(" ")[0]) for text in commands)


def _directories(root: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for each in LOAD_PATH:
        directory = root / each
        real = os.path.realpath(directory)
        if directory.is_dir() and real not in seen:  # /lib may be a link to /usr/lib
            seen.add(real)
            yield directory


def _require_unit(name: str, root: Path) -> Path:
    unit = _unit_path(name, root)
    if unit is None:
        raise UnitMissing(f"unit {name}: there is no such file in the directories of systemd")
    if _masked(unit):
        raise UnitMissing(f"unit {name}: it is masked by {unit}")
    return unit


def _unit_path(name: str, root: Path) -> Path | None:
    for directory in _directories(root):
        path = directory / name
        if path.is_symlink() or path.exists():
            return path
    return None


def _masked(path: Path) -> bool:
    if path.is_symlink() and os.path.realpath(path) == os.devnull:
        return True
    try:
        return path.stat().st_size == 0
    except OSError:
        return False  # reading it names the error


def _drop_ins(name: str, root: Path) -> list[Path]:
    """Files of NAME.d and service.d, by name; of those with one name the first one."""
    found: dict[str, Path] = {}
    for kind in (f"{name}.d", "service.d"):
        for directory in _directories(root):
            for path in _listed(directory / kind):
                if path.name.endswith(".conf"):
                    found.setdefault(path.name, path)
    return [found[each] for each in sorted(found) if os.path.realpath(found[each]) != os.devnull]


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnitError(f"{directory}: it can't be read: {error.strerror}") from error


def _environment_paths(text: str, root: Path) -> list[Path]:
    """The files that an EnvironmentFile= names; it may be a pattern."""
    relative = text.lstrip("/")
    if any(char in relative for char in "*?["):
        return sorted(root.glob(relative))
    return [root / relative]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode()
    except OSError as error:
        raise UnitError(f"{path}: it can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnitError(f"{path}: it is not UTF-8") from error


def _specifiers(name: str) -> dict[str, str]:
    plain = name.removesuffix(".service")
    host = socket.gethostname()
    return {
        "H": host,
        "l": host.partition(".")[0],
        "n": name,
        "N": plain,
        "p": plain.partition("@")[0],
        "i": plain.partition("@")[2],
    }


# Processes, from /proc.


def find_kubelets(proc: Path = Path("/proc")) -> list[Process]:
    """All running kubelets, by process id; those that end meanwhile are left out."""
    pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal())
    found = (read_process(pid, proc) for pid in pids)
    return [each for each in found if each is not None and is_kubelet(each.command[0])]


def read_process(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """A process, whatever its program; None: there is no such process, or it has no arguments."""
    directory = proc / str(pid)
    try:
        parts = (directory / "cmdline").read_bytes().split(b"\0")[:-1]
        command = tuple(os.fsdecode(word) for word in parts)
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
