"""The layout of volumes of files: atomic swaps, and recovery after a crash."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.files import atomic
from kubeletpy.volumes.files.atomic import write_payload
from kubeletpy.volumes.files.paths import FileContent, Payload
from kubeletpy.volumes.files.safe_path import give_to_group, owned_mode

NOW = 1_700_000_000.0


def files(**texts: str) -> Payload:
    return {
        name.replace("__", "/"): FileContent(text.encode(), 0o644) for name, text in texts.items()
    }


def reported(volume: Path) -> dict[str, str]:
    """The files that a container sees, path -> text."""
    return {
        str(path.relative_to(volume)): path.read_text()
        for top in volume.iterdir()
        if not top.name.startswith("..")
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.is_file()
    }


@pytest.mark.usefixtures("strict_umask")
def test_layout(tmp_path: Path) -> None:
    assert write_payload(str(tmp_path), files(a="1", d__x="2"), NOW)
    assert reported(tmp_path) == {"a": "1", "d/x": "2"}
    version = (tmp_path / "..data").readlink()
    assert str(version).startswith("..2023_11_14_22_13_20.")
    assert (tmp_path / "a").readlink() == Path("..data/a")
    assert (tmp_path / "d").readlink() == Path("..data/d")
    assert stat.S_IMODE((tmp_path / version).stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / version / "d").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / version / "a").stat().st_mode) == 0o644


def test_a_reader_that_has_resolved_the_link_can_still_open_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        assert (old / "a").read_text() == "1", "by who came before"
        assert (tmp_path / "a").read_text() == "2", "by who comes now"

    monkeypatch.setattr("kubeletpy.volumes.files.atomic.time.sleep", meanwhile)
    write_payload(str(tmp_path), files(a="1"), NOW)
    assert waited == [], "a pod that starts has no readers"
    old = (tmp_path / "..data").resolve()
    write_payload(str(tmp_path), files(a="1"), NOW)
    assert waited == []
    write_payload(str(tmp_path), files(a="2"), NOW)
    assert waited == [atomic.READERS_S]
    assert not old.exists()


def test_equal_content_is_left_alone(tmp_path: Path) -> None:
    write_payload(str(tmp_path), files(a="1"), NOW)
    before = (tmp_path / "..data").readlink()
    assert not write_payload(str(tmp_path), files(a="1"), NOW + 1)
    assert (tmp_path / "..data").readlink() == before


@pytest.mark.parametrize(
    "later",
    [files(a="2"), files(a="1", b="2"), files(b="1"), files(), files(a__b="1"), files(a="11")],
)
def test_an_update_shows_exactly_the_new_files(tmp_path: Path, later: Payload) -> None:
    write_payload(str(tmp_path), files(a="1"), NOW)
    assert write_payload(str(tmp_path), later, NOW + 1)
    assert reported(tmp_path) == {path: content.data.decode() for path, content in later.items()}
    assert len([entry for entry in tmp_path.iterdir() if entry.name.startswith("..2")]) == 1


@pytest.mark.parametrize("step", range(8))
def test_a_crash_at_any_step_leaves_old_or_new_and_is_completed(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_payload(str(tmp_path), files(a="1", old="x"), NOW)
    left = step

    class Crash(Exception):
        pass

    def crashing(real: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: Any, **kwargs: Any) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash
            return real(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("mkdir", "symlink_to", "replace", "unlink"):
            patch.setattr(Path, name, crashing(getattr(Path, name)))
        patch.setattr(atomic, "_write_file", crashing(atomic._write_file))
        patch.setattr(shutil, "rmtree", crashing(shutil.rmtree))
        with pytest.raises(Crash):
            write_payload(str(tmp_path), files(a="2", new="y"), NOW + 1)
    assert (tmp_path / "a").read_text() in ("1", "2")
    write_payload(str(tmp_path), files(a="2", new="y"), NOW + 2)
    assert reported(tmp_path) == {"a": "2", "new": "y"}
    assert len(list(tmp_path.iterdir())) == 4


def test_a_reader_never_sees_half_an_update(tmp_path: Path) -> None:
    write_payload(str(tmp_path), files(a="0", b="0"), NOW)
    reader = os.fork()
    if reader == 0:
        try:
            for _ in range(3000):
                (tmp_path / "..data").readlink()
                try:
                    version = os.open(tmp_path / "..data", os.O_RDONLY)
                except FileNotFoundError:  # the target of the link has just been removed
                    continue
                try:
                    texts = [
                        os.read(os.open(name, os.O_RDONLY, dir_fd=version), 9) for name in "ab"
                    ]
                except FileNotFoundError:  # the version was removed meanwhile: read again
                    continue
                finally:
                    os.close(version)
                if texts[0] != texts[1]:
                    os._exit(1)
        except FileNotFoundError:
            os._exit(2)
        except OSError:
            pass  # too many files are open: enough has been checked
        os._exit(0)
    for number in range(200):
        write_payload(str(tmp_path), files(a=str(number), b=str(number)), NOW + number)
    assert os.waitpid(reader, 0)[1] == 0


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(FileExistsError):
        write_payload(str(tmp_path), files(a="1"), NOW)


@pytest.mark.parametrize(
    ("mode", "read_only", "owned"),
    [
        (stat.S_IFREG | 0o400, False, 0o660),
        (stat.S_IFREG | 0o400, True, 0o440),
        (stat.S_IFREG | 0o755, True, 0o755),
        (stat.S_IFDIR | 0o755, False, 0o2775),
        (stat.S_IFDIR | 0o777, True, 0o2777),
        (stat.S_IFDIR | 0o700, True, 0o2750),
    ],
)
def test_modes_of_files_owned_by_a_group(mode: int, read_only: bool, owned: int) -> None:
    assert stat.S_IMODE(owned_mode(mode, read_only=read_only)) == owned


def test_a_group_gets_everything_but_what_links_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    volume = tmp_path / "volume"
    (volume / "d").mkdir(parents=True)
    (volume / "d/f").write_text("x")
    (volume / "link").symlink_to(outside)
    (volume / "dirlink").symlink_to(tmp_path)
    give_to_group(str(volume), 4242, read_only=False)
    for path in (volume, volume / "d", volume / "d/f", volume / "link", volume / "dirlink"):
        assert path.lstat().st_gid == 4242
    assert (outside.stat().st_gid, stat.S_IMODE(outside.stat().st_mode)) == (0, 0o600)
    assert stat.S_IMODE((volume / "d").stat().st_mode) & stat.S_ISGID


def test_a_file_is_read_as_last_written(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    for text in ("old", "new"):
        write_payload(str(volume), files(deep__token=text), NOW)
    read = partial(atomic.read_file, str(tmp_path), str(volume), "deep/token")
    assert read(3) == b"new"
    with pytest.raises(OSError, match="too large"):
        read(2)
    with pytest.raises(FileNotFoundError):
        atomic.read_file(str(tmp_path), str(volume), "token", 9)
    with pytest.raises(FileNotFoundError):
        atomic.read_file(str(tmp_path), str(tmp_path / "none"), "token", 9)


@pytest.mark.parametrize("where", ["..data", "version", "deep", "deep/token", "volume"])
def test_no_link_in_a_volume_is_followed(tmp_path: Path, where: str) -> None:
    volume, elsewhere = tmp_path / "v", tmp_path / "elsewhere"
    volume.mkdir()
    write_payload(str(volume), files(deep__token="mine"), NOW)
    version = volume / (volume / "..data").readlink()
    place = {
        "..data": volume / "..data",
        "version": version,
        "deep": version / "deep",
        "deep/token": version / "deep" / "token",
        "volume": volume,
    }[where]
    place.rename(elsewhere)
    place.symlink_to(tmp_path if where == "..data" else elsewhere)
    with pytest.raises(OSError, match=r"leads elsewhere|symbolic links|Not a directory"):
        atomic.read_file(str(tmp_path), str(volume), "deep/token", 9)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    write_payload(str(volume), files(token="mine"), NOW)
    token = volume / (volume / "..data").readlink() / "token"
    token.unlink()
    os.mkfifo(token)
    with pytest.raises(OSError, match="no regular file"):
        atomic.read_file(str(tmp_path), str(volume), "token", 9)
