"""A volume in memory gets another size while files in it are open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.pods.resources import VolumeSizeError
from kubeletpy.volumes.files.disk import unmount
from kubeletpy.volumes.pod_volumes.set_up import make_tmpfs, resize_tmpfs

MI = 1 << 20


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "volume"
    make_tmpfs(str(directory), 2 * MI)
    yield directory
    unmount(str(directory))


def total(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize


def test_the_size_grows_and_shrinks_and_files_stay(mounted: Path) -> None:
    file = mounted / "file"
    with file.open("wb") as opened:
        opened.write(b"x" * MI)
        opened.flush()
        resize_tmpfs(str(mounted), 4 * MI)
        assert total(mounted) == 4 * MI
        opened.write(b"y" * 2 * MI)
    resize_tmpfs(str(mounted), 3 * MI)
    assert total(mounted) == 3 * MI
    assert file.read_bytes() == b"x" * MI + b"y" * 2 * MI
    assert mounted.stat().st_mode & 0o7777 == 0o1777


def test_a_size_below_the_use_is_refused(mounted: Path) -> None:
    (mounted / "file").write_bytes(b"x" * MI)
    with pytest.raises(VolumeSizeError, match=rf"Invalid argument: {MI} bytes are in use"):
        resize_tmpfs(str(mounted), MI // 2)
    assert total(mounted) == 2 * MI


def test_a_directory_that_is_no_mount_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(VolumeSizeError, match="not mounted"):
        resize_tmpfs(str(tmp_path), MI)
