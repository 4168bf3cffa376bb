"""Errors of files: their paths, and the state of a disk that is full, read-only or broken."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.errors import (
    DiskError,
    FaultKind,
    MachineFault,
    NoThread,
    exhausted,
    machine_fault,
)
from kubeletpy.base.host.files import open_folder, write_private
from kubeletpy.volumes.files.disk import mount, unmount


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB and 16 inodes. Needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("tmpfs", str(disk), "tmpfs", 0, "size=1m,nr_inodes=16")
    yield disk
    unmount(str(disk))


def test_a_full_disk_is_named_with_its_usage(small: Path) -> None:
    (small / "filler").write_bytes(b"x" * 900 * 1024)
    with pytest.raises(DiskError) as raised:
        write_private(small / "state", b"x" * 300 * 1024)
    assert str(raised.value) == (
        f"[Errno 28] No space left on device (file system {small}: 100% of 1.0 MiB and 19% of 16 "
        f"inodes are used): '{small}/state'"
    )
    assert machine_fault(raised.value) == MachineFault(
        FaultKind.SPACE, f"{small}/state", str(small), 1 << 20, 100, 16, 19
    )
    assert [each.name for each in small.iterdir()] == ["filler"], "nothing is left of it"


def test_a_disk_without_inodes(small: Path) -> None:
    folder = small / "a"
    folder.mkdir()
    with pytest.raises(DiskError) as raised:
        for number in range(20):
            write_private(folder / str(number), b"")
    fault = machine_fault(raised.value)
    assert fault is not None
    assert (fault.kind, fault.used_inodes_percent) == (FaultKind.INODES, 100)
    assert fault.path == str(folder / "14"), "not the temporary file"
    with pytest.raises(DiskError) as raised:
        os.close(open_folder(str(small), ("a", "b", "c"), 0o700))
    assert raised.value.filename == f"{small}/a/b"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, FaultKind.READ_ONLY),
        (errno.EDQUOT, FaultKind.QUOTA),
        (errno.EIO, FaultKind.IO),
    ],
)
def test_disks_that_fail_otherwise(tmp_path: Path, number: int, kind: FaultKind) -> None:
    with pytest.raises(DiskError) as raised, complete_errors(tmp_path / "not" / "there"):
        raise OSError(number, os.strerror(number))
    fault = machine_fault(raised.value)
    assert fault is not None
    assert (fault.kind, fault.path) == (kind, str(tmp_path / "not" / "there"))
    assert Path(fault.mount_point).is_mount()
    assert tmp_path.is_relative_to(fault.mount_point)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (None, "/a/b/c"),
        ("c", "/a/b/c"),
        ("b", "/a/b"),
        ("d", "/a/b/c/d"),
        ("/elsewhere", "/elsewhere"),
        ("/proc/self/fd/9", "/a/b/c"),
    ],
)
def test_each_error_has_its_path(name: str | None, reported: str) -> None:
    with pytest.raises(PermissionError) as raised, complete_errors("/a/b/c"):
        raise OSError(errno.EACCES, "denied", name)
    assert str(raised.value) == f"[Errno 13] denied: '{reported}'"
    assert machine_fault(raised.value) == MachineFault(FaultKind.DENIED, reported)


def test_a_path_below_a_descriptor_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with (
            pytest.raises(OSError, match=f"'{tmp_path}/x'"),
            complete_errors(f"/proc/self/fd/{folder}/x"),
        ):
            raise OSError(errno.EMFILE, "too many")
    finally:
        os.close(folder)


def test_the_fault_is_found_behind_other_errors() -> None:
    denied = OSError(errno.EMFILE, "x")
    wrapped = ValueError("y")
    wrapped.__cause__ = denied
    assert machine_fault(wrapped) == MachineFault(FaultKind.DESCRIPTORS)
    assert machine_fault(NoThread()) == MachineFault(FaultKind.THREADS)
    assert machine_fault(OSError("of ours")) is None
    assert machine_fault(FileNotFoundError(2, "x")) is None
    assert machine_fault(None) is None


# Errors that mean the machine has run out of a resource.


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/path")


def _caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def _meanwhile(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


@pytest.mark.parametrize(
    "number",
    [
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
    ],
)
def test_the_machine_has_run_out(number: int) -> None:
    error = _error(number)
    assert exhausted(error) is error
    assert exhausted(_caused(ValueError("outer"), _caused(KeyError("x"), error))) is error


def test_no_thread() -> None:
    error = NoThread()
    assert exhausted(error) is error
    assert (error.errno, error.strerror) == (
        errno.EAGAIN,
        "no thread can be made: too many processes or threads on this machine",
    )


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("why"),
        _error(errno.ENOENT),
        _error(errno.EACCES),
        _error(errno.EAGAIN),  # a non-blocking socket reports this: a bug of the program
        _caused(ValueError("outer"), KeyError("inner")),
        _meanwhile(ValueError("outer"), _error(errno.EMFILE)),
    ],
    ids=repr,
)
def test_another_reason(error: Exception | None) -> None:
    assert exhausted(error) is None
