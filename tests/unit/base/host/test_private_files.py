"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.files import read_or_make, remove_unfinished, write_private, write_whole
from kubeletpy.images.records.model import PulledRecord
from kubeletpy.images.records.store import RecordFiles
from kubeletpy.volumes.csi import files as csi_files

Write = Callable[[Path, int], Path]
"""Writes content number n below a folder; returns the file."""


def _private(folder: Path, number: int) -> Path:
    write_private(folder / "f", f"content {number}")
    return folder / "f"


def _whole(folder: Path, number: int) -> Path:
    write_whole(folder / "f", f"content {number}", mode=0o644, flushed=False)
    return folder / "f"


def _vol_data(folder: Path, number: int) -> Path:
    file = folder / "vol_data.json"
    csi_files.write(str(file), csi_files.VolumeData("driver", f"handle {number}"))
    return file


def _intent(folder: Path, number: int) -> Path:
    files = RecordFiles(folder)
    files.load()
    files.write_intent("image")
    (file,) = (folder / "image_manager" / "pulling").iterdir()
    return file


def _record(folder: Path, number: int) -> Path:
    files = RecordFiles(folder)
    files.load()
    files.write_record(PulledRecord("image", updated_at=number))
    (file,) = (folder / "image_manager" / "pulled").iterdir()
    return file


WRITERS: list[Write] = [_private, _whole, _vol_data, _intent, _record]
FLUSHED: list[Write] = [_private, _intent, _record]


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _check_failed_write(
    write: Write, folder: Path, patch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """For each disk error, a failed write keeps the old file and leaves nothing else."""
    file = write(folder, 1)
    before = _files(folder)
    assert before.keys() == {file}
    for number in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO):
        with patch.context() as now, pytest.raises(OSError) as raised:
            now.setattr(where, name, _fails(number))
            write(folder, 2)
        assert raised.value.errno == number
        assert _files(folder) == before


def test_a_file_is_replaced_and_readable_by_root_only(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("a longer one")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("where", "name"), [(os, "open"), (Path, "replace")], ids=["open", "rename"]
)
@pytest.mark.parametrize("write", WRITERS)
def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, where: Any, name: str
) -> None:
    _check_failed_write(write, tmp_path, monkeypatch, where, name)


@pytest.mark.parametrize("write", FLUSHED)
def test_a_failed_fsync_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    _check_failed_write(write, tmp_path, monkeypatch, os, "fsync")


@pytest.mark.parametrize("write", WRITERS)
def test_a_disk_that_is_full_in_the_middle(tmp_path: Path, write: Write) -> None:
    """The part that was written is removed."""
    write(tmp_path, 1)
    kept = _files(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            write(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert raised.value.errno == errno.EFBIG
    assert _files(tmp_path) == kept


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    remove_unfinished(tmp_path / "nowhere")
    for name in ("state", ".hidden", ".state.0a1b2c3", ".state.0A1B2C3D", "state.0a1b2c3d"):
        (tmp_path / name).touch()
    (tmp_path / ".folder.0a1b2c3d").mkdir()
    kept = set(tmp_path.iterdir())
    (tmp_path / ".link.0a1b2c3d").symlink_to(tmp_path / "state")
    child = os.fork()
    if not child:
        Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign,assignment]
        write_private(tmp_path / "state", b"x")
        os._exit(1)
    os.waitpid(child, 0)
    assert len(set(tmp_path.iterdir()) - kept) == 2
    remove_unfinished(tmp_path)
    assert set(tmp_path.iterdir()) == kept


@pytest.mark.parametrize("there", [None, b"", b"short"])
def test_random_bytes_are_created_once(tmp_path: Path, there: bytes | None) -> None:
    file = tmp_path / "key"
    if there is not None:
        file.write_bytes(there)
    made = read_or_make(file)
    assert len(made) == 32
    assert read_or_make(file) == made
    assert file.stat().st_mode & 0o777 == 0o600


def _fails(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail
