"""The kubelets of this machine: the units that systemd has loaded, and processes.

systemd is queried over D-Bus. ``systemctl show`` joins the words of a command, so that a space
inside one is lost among those between two. Must never start a program, nor signal a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.agent.takeover.preflight.checks import Process
from kubeletpy.agent.takeover.preflight.findings import KubeletFound
from kubeletpy.agent.takeover.preflight.unit_command import (
    Service,
    UnitCommand,
    UnitError,
    is_kubelet,
    kubelet_command,
    read_environment_file,
)
from kubeletpy.base.host.errors import DBusError

if TYPE_CHECKING:
    from kubeletpy.base.host.dbus import Bus

MAX_BYTES = 1 << 20
SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = (SYSTEMD, "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager")
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNIT = {"LoadState": "s", "LoadError": "(ss)", "FragmentPath": "s", "DropInPaths": "as"}
_SERVICE = {
    "ExecStart": "a(sasbttttuii)",
    "Environment": "as",
    "EnvironmentFiles": "a(sb)",
    "UnsetEnvironment": "as",
    "WorkingDirectory": "s",
}
"""Properties with their types."""
_EXEC_START_EX = {"ExecStartEx": "a(sasasttttuii)"}
"""Since systemd 243. Before it, ``:`` before a command can't be seen."""


class UnitMissing(Exception):
    """There is no such unit, or it is masked; the message names it."""


@contextlib.asynccontextmanager
async def system_bus() -> AsyncIterator[Bus]:
    """The bus of this machine. Raises UnitMissing, or UnitError if it does not answer."""
    from kubeletpy.base.host.dbus import Bus

    try:
        bus = await Bus.connect()
    except FileNotFoundError as error:
        raise UnitMissing("systemd can't be queried: there is no system bus") from error
    except (OSError, DBusError, TimeoutError) as error:
        raise _not_queried(error) from error
    try:
        yield bus
    finally:
        await bus.close()


async def load_service(bus: Bus, name: str) -> Service:
    """A service as systemd has loaded it.

    Args:
        name: such as ``kubelet.service``.

    Raises:
        UnitMissing: there is no such unit, or it is masked.
        UnitError: systemd could not load it, or does not answer.
    """
    unit = await _properties(bus, name, "Unit", _UNIT)
    match unit["LoadState"]:
        case "loaded":
            pass
        case "masked":
            raise UnitMissing(f"unit {name}: it is masked by {unit['FragmentPath']}")
        case "not-found":
            raise UnitMissing(f"unit {name}: systemd has no such unit")
        case state:
            raise UnitError(f"unit {name}: systemd can't load it ({state}): {unit['LoadError'][1]}")
    found = await _properties(bus, name, "Service", _SERVICE, _EXEC_START_EX)
    ignored = "ignore-failure"
    flags = [tuple(each[2]) for each in found.get("ExecStartEx", ())] or [
        (ignored,) if each[2] else () for each in found["ExecStart"]
    ]
    directory = found["WorkingDirectory"].removeprefix("!")
    return Service(
        (unit["FragmentPath"], *unit["DropInPaths"]),
        tuple(
            UnitCommand(each[0], tuple(each[1][1:]), of)
            for each, of in zip(found["ExecStart"], flags, strict=True)
        ),
        tuple(found["Environment"]),
        tuple((path, ignore) for path, ignore in found["EnvironmentFiles"]),
        tuple(found["UnsetEnvironment"]),
        directory if directory.startswith("/") else "/",
    )


async def read_unit(bus: Bus, name: str, root: Path = Path("/")) -> KubeletFound:
    """The kubelet that a unit starts.

    Args:
        name: such as ``kubelet.service``.
        root: where environment files are.

    Raises:
        UnitMissing: there is no such unit, or it is masked.
        UnitError: it or an environment file can't be read or understood, or it starts no kubelet.
    """
    service = await load_service(bus, name)
    files, environment = await asyncio.to_thread(_environment, service, root)
    command = kubelet_command(service, environment, f"unit {name}")
    files = (*service.files, *files)
    return KubeletFound(f"unit {name}", command[0], command[1:], service.directory, files)


async def kubelet_units(bus: Bus) -> list[str]:
    """Names of the units that start a kubelet, without those that can't be read.

    They are found in systemd's directories, because ``ListUnitFiles`` keeps systemd busy: for 7 to
    10 s on a virtual node of one processor.
    """
    target = (SYSTEMD, _MANAGER[1], _PROPERTIES, "Get", "ss", _MANAGER[2], "UnitPath")
    directories = (await _call(bus, *target)).body[0].value
    found = []
    for name in sorted(await asyncio.to_thread(_files_with_kubelet, directories)):
        with contextlib.suppress(UnitMissing, UnitError):
            service = await load_service(bus, name)
            if any(is_kubelet(each.program) for each in service.commands):
                found.append(name)
    return found


def _files_with_kubelet(directories: Sequence[str]) -> set[str]:
    """Names of service files that contain "kubelet", without templates, aliases and masks."""
    return {
        path.name
        for directory in directories
        for path in Path(directory).glob("*.service")
        if not path.stem.endswith("@")
        and path.resolve().name == path.name
        and _may_start_kubelet(path)
    }


async def _properties(
    bus: Bus, name: str, interface: str, types: Mapping[str, str], more: Mapping[str, str] = {}
) -> dict[str, Any]:
    """Properties of a unit, those of ``more`` if it has them; their types are checked."""
    label = "".join(
        each if each.isascii() and each.isalnum() else f"_{ord(each):02x}" for each in name
    )
    path = f"{_MANAGER[1]}/unit/{label}"
    target = (SYSTEMD, path, _PROPERTIES, "GetAll")
    try:
        reported = (await _call(bus, *target, "s", f"{SYSTEMD}.{interface}")).body[0]
    except UnitError as error:
        raise UnitError(f"unit {name}: {error}") from error
    found = {}
    for key, signature in {**types, **more}.items():
        variant = reported.get(key)
        if variant is not None and variant.signature == signature:
            found[key] = variant.value
        elif key in types:
            raise UnitError(f"unit {name}: systemd does not report {key}: is it a service?")
    return found


def _not_queried(error: Exception) -> UnitError:
    why = str(error) or "it does not answer in time"  # a timeout has no text
    return UnitError(f"systemd can't be queried: {why}")


async def _call(bus: Bus, *call: Any) -> Any:
    try:
        return await bus.call(*call)
    except (OSError, DBusError, TimeoutError) as error:
        raise _not_queried(error) from error


def _may_start_kubelet(path: Path) -> bool:
    try:
        return "kubelet" in _read(path)
    except UnitError:
        return False


def _environment(service: Service, root: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The environment files of a service and their variables."""
    files, found = [], []
    for text, may_be_absent in service.environment_files:
        relative = text.lstrip("/")
        for path in sorted(root.glob(relative)) or [root / relative]:
            if path.exists() or not may_be_absent:
                found.append(read_environment_file(str(path), _read(path)))
                files.append(str(path))
    return tuple(files), found


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode()
    except OSError as error:
        raise UnitError(f"{path}: it can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnitError(f"{path}: it is not UTF-8") from error


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
