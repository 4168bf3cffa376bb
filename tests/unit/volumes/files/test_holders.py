"""Processes that keep a mount busy, found in a /proc of the test and in the real one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kubeletpy.volumes.files.disk import (
    MAX_FILES,
    MAX_S,
    REPORTED,
    HoldingProcess,
    holders,
    holders_text,
)

VOLUME = "/pods/u/volumes/v"
HOLDS = {"cwd": VOLUME}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "sys").mkdir()
    return tmp_path


def process(
    proc: Path,
    pid: int,
    links: Mapping[str, str],
    command: bytes = b"sh\n",
    namespace: int = 1,
) -> None:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "ns").mkdir()
    (directory / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
    (directory / "comm").write_bytes(command)
    for name, target in {"cwd": "/", "root": "/", "exe": "/bin/sh", **links}.items():
        (directory / name.replace("fd", "fd/")).symlink_to(target)


@pytest.mark.parametrize(
    ("links", "held"),
    [
        ({}, False),
        ({"cwd": VOLUME}, True),
        ({"root": f"{VOLUME}/root"}, True),
        ({"exe": f"{VOLUME}/program (deleted)"}, True),
        ({"fd3": "socket:[1]", "fd4": f"{VOLUME}/a"}, True),
        ({"cwd": f"{VOLUME}er", "fd3": "/pods/u/volumes"}, False),
    ],
)
def test_links(proc: Path, links: dict[str, str], held: bool) -> None:
    process(proc, 7, links)
    assert holders(VOLUME, str(proc)) == ([HoldingProcess(7, "sh")] if held else [])


def test_those_of_this_namespace_come_first_and_not_all(proc: Path) -> None:
    process(proc, 1, HOLDS, namespace=2)
    for pid in range(2, 4):
        process(proc, pid, HOLDS)
    found = holders(VOLUME, str(proc))
    assert sorted((each.pid, each.apart) for each in found) == [(1, True), (2, False), (3, False)]
    assert found[-1].apart
    for pid in range(4, 20):
        process(proc, pid, HOLDS)
    assert [each.apart for each in holders(VOLUME, str(proc))] == [False] * REPORTED


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        (b"a" * 100, "a" * 16),
        (b"x\x1b[1m\xff\n", "x?[1m\ufffd"),
        (b"a\nb", "a"),
        (b"", "?"),
    ],
)
def test_a_command_has_any_name(proc: Path, command: bytes, reported: str) -> None:
    process(proc, 7, HOLDS, command)
    assert holders(VOLUME, str(proc)) == [HoldingProcess(7, reported)]


def test_a_process_that_ends_meanwhile(proc: Path) -> None:
    (proc / "8").mkdir()
    (proc / "9").mkdir()
    (proc / "9/cwd").symlink_to(VOLUME)
    assert holders(VOLUME, str(proc)) == [HoldingProcess(9, "?", apart=True)]
    assert holders(VOLUME, str(proc / "none")) == []


def test_the_search_is_bounded(proc: Path) -> None:
    process(proc, 7, HOLDS)
    times = iter([0.0, MAX_S + 0.1])
    assert holders(VOLUME, str(proc), now=lambda: next(times)) == [], "no longer than that"
    process(proc, 8, {f"fd{number}": "/x" for number in range(MAX_FILES + 50)})
    assert [each.pid for each in holders(VOLUME, str(proc))] == [7]


def test_the_real_one(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w"):
        mine = [each for each in holders(str(tmp_path)) if each.pid == os.getpid()]
    assert [each.apart for each in mine] == [False]
    assert os.getpid() not in [each.pid for each in holders(str(tmp_path))]


def test_the_text_about_holders() -> None:
    assert holders_text([]) == ""
    assert holders_text([HoldingProcess(7, "sh"), HoldingProcess(8, "dd", apart=True)]) == (
        "; it is in use by process 7 (sh), process 8 (dd, in another mount namespace)"
    )
