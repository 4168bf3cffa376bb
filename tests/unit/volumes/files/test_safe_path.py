"""Paths inside volumes, also while somebody changes them under our hands (CVE-2017-1002101)."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.containers.container_mounts import bind_sub_path
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files.disk import mounts_below, unmount
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.files.safe_path import open_beneath, prepare
from tests.kit.costs import open_descriptors


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with entries that a container may have created; "secret" lies outside."""
    (tmp_path / "secret").write_text("host")
    root = tmp_path / "volume"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    links = {
        "to_file": "a/b/file",
        "to_dir": "a/b",
        "a/up": "../a/b",
        "out": "../secret",
        "a/far_out": "../../secret",
        "absolute": str(tmp_path / "secret"),
        "absolute_in": str(root / "a/b"),
        "root": "/",
        "loop": "loop",
        "hidden": "a/../../volume/../secret",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


def read(volume: Path, path: str) -> str:
    found = open_beneath(str(volume), path.split("/"))
    try:
        return Path(f"/proc/self/fd/{found}").read_text()
    finally:
        os.close(found)


@pytest.mark.parametrize(
    "path",
    ["a/b/file", "to_file", "to_dir/file", "a/up/file", "absolute_in/file", "to_dir/../b/file"],
)
def test_paths_inside(volume: Path, path: str) -> None:
    assert read(volume, path) == "inside"


@pytest.mark.parametrize(
    "path", ["out", "a/far_out", "absolute", "root/etc", "hidden", "../secret"]
)
def test_paths_that_lead_out(volume: Path, path: str) -> None:
    with pytest.raises(UnsafePath, match="out of the volume"):
        read(volume, path)


def test_loops_and_files_in_the_way(volume: Path) -> None:
    with pytest.raises(UnsafePath, match="too many links"):
        read(volume, "loop")
    with pytest.raises(NotADirectoryError):
        read(volume, "a/b/file/x")
    with pytest.raises(FileNotFoundError):
        read(volume, "a/none")


@pytest.mark.usefixtures("strict_umask")
def test_missing_directories_get_the_volumes_mode(volume: Path) -> None:
    volume.chmod(0o3777)
    os.close(open_beneath(str(volume), ["a", "new", "er"], create=True))
    for path in (volume / "a/new", volume / "a/new/er"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o3777


def test_nothing_is_made_outside(volume: Path) -> None:
    (volume / "dangling").symlink_to("../made")
    with pytest.raises(UnsafePath):
        open_beneath(str(volume), ["dangling"], create=True)
    assert not (volume.parent / "made").exists()


def test_descriptors_are_closed(volume: Path) -> None:
    before = open_descriptors()
    for path in ("a/b/file", "out", "loop", "none"):
        try:
            os.close(open_beneath(str(volume), [path]))
        except (UnsafePath, OSError):
            continue
    assert open_descriptors() == before


@pytest.fixture
def racer(volume: Path) -> Iterator[Path]:
    """A process that swaps the directory "a" and a link to the host as fast as it can."""
    (volume / "evil").symlink_to(volume.parent)
    (volume / "a/secret").write_text("inside")
    child = os.fork()
    if child == 0:
        try:
            while True:
                (volume / "a").rename(volume / "t")
                (volume / "evil").rename(volume / "a")
                (volume / "a").rename(volume / "evil")
                (volume / "t").rename(volume / "a")
        finally:
            os._exit(1)
    yield volume
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_a_race_reaches_nothing_outside(racer: Path, tmp_path: Path) -> None:
    target = tmp_path / "subpaths/0"
    end = time.monotonic() + 3
    seen = {"inside": 0, "refused": 0, "missing": 0}

    def met() -> bool:
        """Both outcomes of the race must occur; a busy machine needs longer for that."""
        return seen["inside"] > 10 and seen["refused"] + seen["missing"] > 10

    while time.monotonic() < end or not met():
        assert time.monotonic() < end + 60, seen
        try:
            bind_sub_path(str(racer), ["a", "secret"], str(target), read_only=True)
        except UnsafePath:
            seen["refused"] += 1
            continue
        except FileNotFoundError:
            seen["missing"] += 1
            continue
        try:
            assert target.read_text() == "inside"
            seen["inside"] += 1
        finally:
            for point in mounts_below(str(target)):
                unmount(point)


def test_a_bind_is_kept_or_renewed(volume: Path, tmp_path: Path) -> None:
    target = tmp_path / "subpaths/0"
    try:
        bind_sub_path(str(volume), ["a", "b", "file"], str(target), read_only=False)
        bind_sub_path(str(volume), ["a", "b", "file"], str(target), read_only=False)
        assert len(mounts_below(str(target))) == 1
        (volume / "a/b/file").unlink()
        (volume / "a/b/file").mkdir()
        (volume / "a/b/file/x").write_text("new")
        bind_sub_path(str(volume), ["a", "b", "file"], str(target), read_only=False)
        assert len(mounts_below(str(target))) == 1
        assert (target / "x").read_text() == "new"
    finally:
        for point in mounts_below(str(tmp_path)):
            unmount(point)


@pytest.mark.parametrize("broken", [errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.EHOSTDOWN])
def test_a_mount_that_does_not_answer_is_replaced(
    volume: Path, tmp_path: Path, broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale NFS handle or a dead FUSE server below a subPath; behaviour.md, u: ka62."""
    target = tmp_path / "subpaths/0"
    lstat = os.lstat
    flags: list[int] = []
    umount2 = disk._libc().umount2

    def refused(path: object, **options: Any) -> os.stat_result:
        if os.fspath(path) == str(target) and not flags:  # type: ignore[call-overload]
            raise OSError(broken, os.strerror(broken), str(target))
        return lstat(path, **options)  # type: ignore[arg-type]

    class Libc:
        mount = disk._libc().mount

        @staticmethod
        def umount2(path: bytes, how: int) -> int:
            flags.append(how)
            return int(umount2(path, how))

    try:
        bind_sub_path(str(volume), ["a", "b"], str(target), read_only=False)
        with monkeypatch.context() as patched:
            patched.setattr(os, "lstat", refused)
            patched.setattr(disk, "_libc", Libc)
            bind_sub_path(str(volume), ["a", "b"], str(target), read_only=False)
        assert len(mounts_below(str(target))) == 1
        assert (target / "file").read_text() == "inside"
        # detached, and not through a link: a flush to a hanging server would not end
        assert set(flags) == {2 | 8}
    finally:
        for point in mounts_below(str(tmp_path)):
            unmount(point)


# hostPath volumes that are created while another process may change the parent directory.


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
