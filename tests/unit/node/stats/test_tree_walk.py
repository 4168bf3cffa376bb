"""Measuring directory trees while other processes write to them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from kubeletpy.base.host.files import remove_tree
from kubeletpy.node.stats import disks
from kubeletpy.node.stats.disks import walk
from tests.descriptors import open_descriptors

BLOCK = b"x" * 4096


def file(path: Path, blocks: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(BLOCK * blocks)
    return path


def test_files_and_directories(tmp_path: Path) -> None:
    file(tmp_path / "a" / "b" / "c" / "one")
    file(tmp_path / "a" / "two", 3)
    file(tmp_path / "three", 2)
    found = walk(str(tmp_path))
    assert found is not None
    directories = sum((tmp_path / d).stat().st_blocks for d in ("", "a", "a/b", "a/b/c")) * 512
    assert found.used == 6 * 4096 + directories
    assert found.inodes == 7
    assert not found.at_least


def test_a_file_counts_itself_and_nothing_is_nothing(tmp_path: Path) -> None:
    found = walk(str(file(tmp_path / "etc-hosts")))
    assert found is not None
    assert (found.used, found.inodes) == (4096, 1)
    assert walk(str(tmp_path / "none")) is None


def test_links_are_counted_and_not_followed(tmp_path: Path) -> None:
    file(tmp_path / "outside" / "big", 100)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "to-file").symlink_to(tmp_path / "outside" / "big")
    (inside / "to-directory").symlink_to(tmp_path / "outside")
    (inside / "up").symlink_to("..")
    found = walk(str(inside))
    assert found is not None
    assert found.used < 100 * 4096
    assert found.inodes == 4
    (tmp_path / "itself").symlink_to(inside)
    link = walk(str(tmp_path / "itself"))
    assert link is not None
    assert link.inodes == 1


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    first = file(tmp_path / "first", 10)
    for number in range(5):
        os.link(first, tmp_path / f"again-{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert found.inodes == 2
    assert found.used < 12 * 4096


def test_too_many_entries_give_a_lower_bound(tmp_path: Path) -> None:
    for number in range(30):
        file(tmp_path / f"d{number % 3}" / f"f{number}")
    found = walk(str(tmp_path), max_entries=10)
    assert found is not None
    assert found.at_least
    assert 0 < found.inodes <= 14


def test_nothing_hides_in_the_depth_of_a_tree(tmp_path: Path) -> None:
    depth = 12_000  # its paths are too long for a system call
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    big = os.open("big", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.posix_fallocate(big, 0, 8 << 20)
    os.close(big)
    os.close(here)
    before = open_descriptors()
    try:
        found = walk(str(tmp_path))
        assert open_descriptors() == before, "every directory is closed"
    finally:
        remove_tree(str(tmp_path))
    assert found is not None
    assert (found.inodes, found.at_least) == (depth + 2, False)
    assert found.used >= 8 << 20


def test_directories_that_wait_are_bounded_and_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_PENDING_BYTES", 5 * len("d00\0"))
    for number in range(10, 30):
        file(tmp_path / f"d{number}" / "inside")
        file(tmp_path / f"f{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert found.at_least and found.beyond
    assert 1 + 20 + 2 * 5 <= found.inodes < 1 + 20 + 2 * 20


def test_directories_one_after_the_other_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_PENDING_BYTES", 3)
    for number in range(20):
        file(tmp_path / "/".join(["d"] * (number + 1)) / "inside")
    found = walk(str(tmp_path))
    assert found is not None
    assert (found.inodes, found.at_least) == (41, False)


def test_files_with_many_names_beyond_those_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_LINKED", 2)
    for number in range(6):
        os.link(file(tmp_path / f"a{number}", 10), tmp_path / f"b{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert 6 * 10 * 4096 <= found.used < 6 * 11 * 4096


def test_a_walk_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "STOP_EVERY", 1)
    for number in range(30):
        file(tmp_path / f"d{number % 3}" / f"f{number}")
    requested = itertools.count()
    found = walk(str(tmp_path), stopped=lambda: next(requested) >= 10)
    assert found is not None
    assert found.at_least
    assert found.inodes < 15


def test_special_files_and_names_are_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "closed").mkdir(mode=0)
    file(tmp_path / b"\xff\xfe".decode("utf-8", "surrogateescape"))
    found = walk(str(tmp_path))
    assert found is not None
    assert found.inodes == 4


def test_a_directory_that_is_swapped_for_a_link_while_it_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(tmp_path / "outside" / "big", 100)
    file(tmp_path / "tree" / "sub" / "x")
    real, seen = os.open, []

    def swapping(path: object, flags: int, *rest: object, **more: object) -> int:
        if path == b"sub":
            (tmp_path / "tree" / "sub").rename(tmp_path / "moved")
            (tmp_path / "tree" / "sub").symlink_to(tmp_path / "outside")
        seen.append(path)
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapping)
    found = walk(str(tmp_path / "tree"))
    assert found is not None
    assert b"sub" in seen
    assert found.inodes == 1


@pytest.mark.parametrize("moves", [1, disks.MOVED_AGAIN])
def test_a_directory_that_is_moved_away_while_it_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    file(tmp_path / "tree" / "sub" / "x")
    (tmp_path / "elsewhere").mkdir()
    file(tmp_path / "elsewhere" / "big", 100)
    here, there = tmp_path / "tree" / "sub", tmp_path / "elsewhere" / "sub"
    real, left = os.open, iter(range(moves))

    def moving(path: object, flags: int, *rest: object, **more: object) -> int:
        if path == str(tmp_path / "tree") and there.exists():
            there.rename(here)
        if path == ".." and next(left, None) is not None:
            here.rename(there)
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", moving)
    before = open_descriptors()
    found = walk(str(tmp_path / "tree"))
    assert open_descriptors() == before
    assert found is not None
    always = moves == disks.MOVED_AGAIN
    assert (found.at_least, found.beyond, found.inodes) == (always, always, 3)
