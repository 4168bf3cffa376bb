"""Open descriptors of processes that other users own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kubeletpy.node.stats import group_files
from kubeletpy.node.stats.group_files import descriptors, read_text


def test_open_files_are_counted(tmp_path: Path) -> None:
    before = descriptors([os.getpid(), 2**22 + 1])
    with socket.socket(), (tmp_path / "f").open("w"):
        assert descriptors([os.getpid()]) == before + 2
    assert descriptors([]) == 0


def test_where_the_kernel_does_not_count_the_counting_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / str(number)).touch()
    (tmp_path / "empty").mkdir()

    class Told:
        st_size = 0

    class Directory(type(tmp_path)):  # type: ignore[misc]
        def stat(self, **_: object) -> object:
            return Told()

    monkeypatch.setattr(group_files, "Path", lambda _: Directory(tmp_path))
    monkeypatch.setattr(group_files, "MAX_LISTED", 40)
    assert descriptors([1]) == 31
    assert descriptors([1, 2, 3]) == 40


def test_a_text_is_bounded_and_a_missing_one_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_files, "MAX_FILE", 10)
    (tmp_path / "f").write_bytes(b"0123456789\xff")
    assert read_text(str(tmp_path / "f")) == "0123456789"
    assert read_text(str(tmp_path / "none")) == ""
    assert read_text(str(tmp_path)) == ""
