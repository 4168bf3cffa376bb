"""Directory trees that containers made: deep, wide, full of links, and changing meanwhile."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.base.host import files
from kubeletpy.base.host.files import Tree, holds_mount, remove_tree
from kubeletpy.podworkers.pod_directories import remove_orphan
from kubeletpy.volumes.files.paths import PodPaths
from kubeletpy.volumes.files.safe_path import give_to_group
from kubeletpy.volumes.pod_volumes.set_up import take_down
from tests.descriptors import open_descriptors

DEPTH = 3000
"""Deeper than Python's stack, and more than a process has descriptors by default."""


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A tree too deep for any path; its last directory has a file."""
    top = tmp_path / "uid" / "volumes" / "kubernetes.io~empty-dir" / "v"
    top.mkdir(parents=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)
    yield top
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def test_deep_directories_do_not_block_the_removal_of_a_pod(deep: Path, tmp_path: Path) -> None:
    descriptors = open_descriptors()
    take_down(PodPaths(str(tmp_path), "uid"))
    assert not deep.exists()
    assert open_descriptors() == descriptors


@pytest.mark.parametrize("folder", ["plugins", "volumes"])
def test_one_pods_directory_does_not_block_others(deep: Path, tmp_path: Path, folder: str) -> None:
    pods = tmp_path / "pods"
    (pods / "bad" / folder).mkdir(parents=True)
    deep.rename(pods / "bad" / folder / "x")
    (pods / "good").mkdir()
    problems = [name for name in ("bad", "good") if remove_orphan(pods / name)]
    assert not (pods / "good").exists()
    assert problems == (["bad"] if folder == "volumes" else [])


def test_a_deep_volume_changes_its_group(deep: Path) -> None:
    give_to_group(str(deep), os.getgid(), read_only=False)
    tree = Tree(str(deep))
    for _ in range(DEPTH):
        tree.down("d")
        assert os.fstat(tree.here).st_mode & 0o070 == 0o070
    assert os.stat("file", dir_fd=tree.here).st_mode & 0o777 == 0o660
    tree.close()


def test_many_files_links_and_pipes_go_and_what_links_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "AT_ONCE", 3)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    top = tmp_path / "top"
    for place in (top, top / "a", top / "a" / "b", top / "c"):
        place.mkdir()
        for number in range(10):
            (place / str(number)).touch()
        (place / "link").symlink_to(kept)
        os.mkfifo(place / "pipe")
    remove_tree(str(top))
    assert not top.exists()
    assert (kept / "file").exists()
    link = tmp_path / "link"
    link.symlink_to(kept)
    with pytest.raises(NotADirectoryError):
        remove_tree(str(link))


def test_files_end_a_removal_of_directories(tmp_path: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "data").touch()
    with pytest.raises(OSError, match="there is a file in it"):
        remove_tree(str(tmp_path / "top"), only_directories=True)
    assert (tmp_path / "top" / "a" / "data").exists()
    (tmp_path / "top" / "a" / "data").unlink()
    remove_tree(str(tmp_path / "top"), only_directories=True)


def test_the_parent_of_a_moved_directory_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "top" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    tree = Tree(str(tmp_path / "top"))
    tree.down("a")
    (tmp_path / "top" / "a").rename(tmp_path / "elsewhere" / "a")
    with pytest.raises(OSError, match="moved") as caught:
        tree.up()
    tree.close()
    assert caught.value.errno == errno.ESTALE


@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="needs a mount")
def test_mounts_are_seen_and_not_entered() -> None:
    device = Path("/dev").stat().st_dev
    assert holds_mount("/dev", device)
    assert not holds_mount("/dev/shm", Path("/dev/shm").stat().st_dev)
    tree = Tree("/dev")
    with pytest.raises(OSError, match="mounted") as caught:
        tree.down("shm")
    assert os.fstat(tree.here).st_dev == device
    tree.close()
    assert caught.value.errno == errno.EXDEV
