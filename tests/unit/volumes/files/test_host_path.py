"""hostPath volumes that are created while another process may change the parent directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.files.safe_path import prepare


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("call", ["chmod", "fchmod"])
@pytest.mark.parametrize("kind", ["FileOrCreate", "DirectoryOrCreate"])
@pytest.mark.usefixtures("strict_umask")
def test_the_mode_is_set_of_what_was_made(
    kind: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link replaces the created entry just before its mode is set."""
    secret, target = tmp_path / "secret", tmp_path / "there" / "new"
    target.parent.mkdir()
    if kind == "FileOrCreate":
        secret.touch(0o600)
    else:
        secret.mkdir(0o700)
    before = mode(secret)
    real = getattr(os, call)

    def swapping(what: Any, *rest: Any, **more: Any) -> None:
        if target.exists():
            target.rename(tmp_path / "moved")
            target.symlink_to(secret)
        real(what, *rest, **more)

    monkeypatch.setattr(os, call, swapping)
    prepare(str(target), kind)
    assert mode(secret) == before


@pytest.mark.usefixtures("strict_umask")
def test_all_that_is_made_is_for_everybody_to_read(tmp_path: Path) -> None:
    prepare(str(tmp_path / "a" / "b" / "c"), "DirectoryOrCreate")
    prepare(str(tmp_path / "a" / "b" / "f"), "FileOrCreate")
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [mode(path) for path in made] == [0o755] * 3
    assert mode(tmp_path / "a" / "b" / "f") == 0o644


@pytest.mark.usefixtures("strict_umask")
def test_a_directory_that_was_there_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with content replaces the new one before that is opened."""
    full, target = tmp_path / "full", tmp_path / "new"
    full.mkdir(0o700)
    (full / "key").touch()
    real = os.mkdir

    def swapping(*supplied: Any, **more: Any) -> None:
        real(*supplied, **more)
        target.rmdir()
        full.rename(target)

    monkeypatch.setattr(os, "mkdir", swapping)
    prepare(str(target), "DirectoryOrCreate")
    assert mode(target) == 0o700
