"""Loop devices: a block device that its own loop device holds open can't become another one.

Blocking: call it on a thread. Source: docs/reference/behaviour-storage.md, si1; loop(4).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

_LOOP_SET_FD, _LOOP_CLR_FD, _LOOP_CTL_GET_FREE = 0x4C00, 0x4C01, 0x4C82
_CONTROL = Path("/dev/loop-control")
_TRIES = 16
"""Other programs take free devices, too."""
_SYS = Path("/sys/block")


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
