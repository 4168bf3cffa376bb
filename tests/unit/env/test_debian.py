"""The directory of downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.env.debian import cache_dir


def test_the_cache_directory_is_the_target_of_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "shared")
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("KUBELETPY_CACHE", str(link))
    assert cache_dir() == (tmp_path / "shared").resolve()


def test_a_missing_cache_directory_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBELETPY_CACHE", str(tmp_path / "new"))
    assert cache_dir().is_dir()
