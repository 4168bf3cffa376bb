"""Facts of this machine: architecture, loop devices, huge pages, labels of files, start times.

Blocking: call it on a thread. Source of loop devices: docs/reference/behaviour-storage.md, si1;
loop(4).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import re
import time
from pathlib import Path

from kubeletpy.base import text
from kubeletpy.base.api.times import Moment

_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_CTL_GET_FREE = 0x4C00, 0x4C01, 0x4C82
_CONTROL = Path("/dev/loop-control")
_TRIES = 16
"""Other programs take free devices, too."""
_SYS = Path("/sys/block")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def architecture() -> str:
    """The machine's architecture in the words of images and of Kubernetes: ``amd64``."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def attach(path: str) -> str:
    """The loop device of a device or file, created if there is none: ``/dev/loop3``.

    Raises OSError.
    """
    found = loop_device_of(path)
    if found is not None:
        return found
    backing = _open(path)
    try:
        for _ in range(_TRIES):
            with _CONTROL.open("r+b", buffering=0) as control:
                number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            try:
                with Path(f"/dev/loop{number}").open("r+b", buffering=0) as device:
                    fcntl.ioctl(device, _LOOP_SET_FD, backing)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                continue
            return f"/dev/loop{number}"
    finally:
        os.close(backing)
    raise OSError(errno.EBUSY, "no loop device stays free", path)


def loop_device_of(path: str) -> str | None:
    """The loop device of a path, if there is one."""
    with os.scandir(_SYS) as entries:
        names = [entry.name for entry in entries if entry.name.startswith("loop")]
    for name in names:
        with contextlib.suppress(OSError):
            if (_SYS / name / "loop" / "backing_file").read_bytes() == os.fsencode(path) + b"\n":
                return f"/dev/{name}"
    return None


def detach(device: str) -> None:
    """Detach a loop device; no-op if it is free. Raises OSError."""
    with Path(device).open("r+b", buffering=0) as opened:
        try:
            fcntl.ioctl(opened, _LOOP_CLR_FD, 0)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


# SELinux: the policy for container files, read from its files.

DEFAULT_LABEL = "system_u:object_r:container_file_t:s0"
"""Default of policies that ship without their own contexts file."""
_FILE = re.compile(r'^\s*file\s*=\s*"?([^"\s]+)"?\s*$', re.MULTILINE)
_TYPE = re.compile(r"^\s*SELINUXTYPE\s*=\s*([\w.-]+)\s*$", re.MULTILINE)


def file_label(root: Path = Path("/")) -> str:
    """The default label of container files; empty: the kernel labels nothing."""
    if not (root / "sys/fs/selinux/enforce").exists():
        return ""
    found = _TYPE.search(_text(root / "etc/selinux/config"))
    policy = found[1] if found else "targeted"
    contexts = _text(root / "etc/selinux" / policy / "contexts/lxc_contexts")
    label = _FILE.search(contexts)
    return label[1] if label is not None and label[1].count(":") >= 3 else DEFAULT_LABEL


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def huge_pages(directory: Path) -> dict[int, int]:
    """Return the bytes reserved by size in bytes; ``directory`` has ``hugepages-*kB``."""
    found = {}
    for entry in directory.glob("hugepages-*kB/nr_hugepages"):
        size = text.number(entry.parent.name.removeprefix("hugepages-").removesuffix("kB"))
        pages = text.number(_text(entry))
        if size is not None and pages is not None:
            found[size * 1024] = size * 1024 * pages
    return dict(sorted(found.items()))


# Start times, by the kernel's own clock. They are read once, at startup.

_START_TICKS = 22
"""The field of /proc/PID/stat with the start time of the process (proc_pid_stat(5))."""


def booted_at(now: float) -> float:
    """When the machine was booted; ``now`` and the answer in Unix seconds."""
    return now - time.clock_gettime(time.CLOCK_BOOTTIME)


def moment(boot_id: str, clocks: Path = Path("/sys/class/rtc")) -> Moment:
    """Now, by both clocks. The wall clock is trusted if the network has set it, or a battery-backed
    clock agrees with it."""
    now = time.time()
    trusted = _set_by_network() or any(
        abs(read - now) <= _AGREES_S for read in _hardware_clocks(clocks)
    )
    return Moment(now, boot_id, time.clock_gettime(time.CLOCK_BOOTTIME), trusted)


_AGREES_S = 60.0
_TIME_ERROR = 5
"""The answer of adjtimex(2) while nothing synchronizes the clock."""
_TIMEX_BYTES = 512
"""More than its structure has on any architecture; only zeros are passed: nothing is set."""


def _set_by_network() -> bool:
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return False
    return 0 <= state < _TIME_ERROR


def _hardware_clocks(clocks: Path) -> list[float]:
    found = []
    for each in clocks.glob("*/since_epoch"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(each.read_text()))
    return found


INIT = Path("/proc/1/stat")
"""That of process 1, which began with the boot, or with the namespaces of a node without root."""


def process_started_at(now: float, stat: Path = Path("/proc/self/stat")) -> float:
    """When a process was started; ``now`` where the kernel does not show it. Unix seconds."""
    try:
        ticks = int(stat.read_text().rpartition(") ")[2].split()[_START_TICKS - 3])
    except (OSError, ValueError, IndexError):
        return now
    return min(booted_at(now) + ticks / os.sysconf("SC_CLK_TCK"), now)
