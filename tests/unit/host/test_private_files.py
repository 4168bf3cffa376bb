"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.host.private_files import read_or_make, write_private


def test_a_file_is_replaced_and_for_root_alone(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("a longer one")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("where", "name"),
    [(os, "open"), (os, "fsync"), (Path, "replace")],
    ids=["open", "fsync", "rename"],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_what_was_there_stays_when_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, number: int
) -> None:
    file = tmp_path / "f"
    write_private(file, b"old")
    with monkeypatch.context() as patch, pytest.raises(OSError) as raised:
        patch.setattr(where, name, _fails(number))
        write_private(file, b"new")
    assert raised.value.errno == number
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208


def test_a_disk_that_is_full_in_the_middle(tmp_path: Path) -> None:
    """Nothing of what fits is left."""
    file = tmp_path / "f"
    write_private(file, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            write_private(file, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert raised.value.errno == errno.EFBIG
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208


@pytest.mark.parametrize("there", [None, b"", b"short"])
def test_random_bytes_are_made_once(tmp_path: Path, there: bytes | None) -> None:
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
