"""Files and links planted beside a log are not followed and never stop its rotation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeletpy.server.logs import rotate
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings

LATE = "0.log.99990101-00000"
EARLY = "0.log.20000101-00000"


class Runtime:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.reopened = 0

    async def reopen_container_log(self, container: str) -> None:
        self.reopened += 1
        self.log.write_bytes(b"x" * 2000)


class Clock:
    """A clock that advances by a second with each reading."""

    def __init__(self) -> None:
        self.seconds = 1e9

    def now(self) -> float:
        self.seconds += 1
        return self.seconds


class Cache(dict[str, Any]):
    def status(self, uid: str) -> Any:
        return self[uid]


def _links(name: str) -> Callable[[Path, Path], None]:
    def put(folder: Path, secret: Path) -> None:
        for index in range(4):
            (folder / f"{name}{index}").symlink_to(secret)

    return put


def _folders(name: str) -> Callable[[Path, Path], None]:
    def put(folder: Path, secret: Path) -> None:
        for index in range(4):
            (folder / f"{name}{index}").mkdir()

    return put


def _pipes(folder: Path, secret: Path) -> None:
    for index in range(4):
        os.mkfifo(folder / f"{LATE}{index}")


def _unfinished(folder: Path, secret: Path) -> None:
    (folder / f"{EARLY}0.tmp").mkdir()


def _finished(folder: Path, secret: Path) -> None:
    (folder / f"{LATE}0").write_bytes(b"y")
    (folder / f"{LATE}0.gz").mkdir()


def _sparse(folder: Path, secret: Path) -> None:
    with (folder / f"{LATE}0").open("wb") as file:
        file.truncate(1 << 40)


def _odd_name(folder: Path, secret: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/0.log.\xff\n")).write_bytes(b"y")


@pytest.mark.parametrize(
    "put",
    [
        _links(EARLY),
        _links(LATE),
        _folders(EARLY),
        _folders(LATE),
        _pipes,
        _unfinished,
        _finished,
        _sparse,
        _odd_name,
    ],
)
async def test_a_log_rotates_whatever_lies_beside_it(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    root, secret = tmp_path / "pods", tmp_path / "secret"
    folder = root / "ns_p_u" / "c"
    folder.mkdir(parents=True)
    secret.write_bytes(b"s" * 5000)
    log = folder / "0.log"
    log.write_bytes(b"x" * 2000)
    put(folder, secret)
    runtime = Runtime(log)
    container = SimpleNamespace(id="c", log_path=str(log))
    cache = Cache(u=SimpleNamespace(running_containers=[container]))

    rotator = LogRotator(
        cast(Any, runtime),
        cast(Any, cache),
        str(root),
        RotationSettings(max_size=1000, max_files=3),
        cast(Any, Clock()),
    )
    for _ in range(3):
        await rotator.rotate_due()
    assert runtime.reopened == 3
    assert secret.read_bytes() == b"s" * 5000
    rotations = [each for each in folder.iterdir() if each.is_file() and each != log]
    assert len(rotations) <= 4
    assert not any(each.is_symlink() for each in folder.iterdir())


def test_a_rotation_that_grows_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.log.1").write_bytes(b"y" * 1000)
    folder = os.open(tmp_path, os.O_RDONLY)
    stat = os.fstat

    def smaller(descriptor: int) -> os.stat_result:
        found = list(stat(descriptor))
        found[6] = 10
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", smaller)
    try:
        with pytest.raises(OSError, match="grows"):
            rotate._compress("0.log.1", dir_fd=folder, most=100)
    finally:
        os.close(folder)
    assert (tmp_path / "0.log.1").exists()
