"""The kernel's table of mounts, in which pods choose names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletpy.base.host.mount_table import (
    in_user_namespace,
    is_shared,
    mounts_below,
    parse,
    references,
)
from kubeletpy.volumes.files.disk import MS_BIND, mount, unmount
from kubeletpy.volumes.files.disk import mounts_below as really_below

TABLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:9 / /r/pods/u/volumes/a rw - tmpfs tmpfs rw
31 30 0:10 / /r/pods/u/volumes/a/in\040side rw shared:5 - tmpfs tmpfs rw
32 27 0:11 / /r/pods/u2/volumes/a rw master:3 - tmpfs tmpfs rw
33 27 0:12 / /r/pods/u/volumes/a rw - tmpfs tmpfs rw
"""
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"
"""Everything that str.splitlines() treats as a line end, besides a newline."""


def test_mounts_below_a_directory_newest_first() -> None:
    assert mounts_below(parse(TABLE), "/r/pods/u") == [
        "/r/pods/u/volumes/a",
        "/r/pods/u/volumes/a/in side",
        "/r/pods/u/volumes/a",
    ]
    assert mounts_below(parse(TABLE), "/r/pods/u3") == []
    assert mounts_below(parse(TABLE), "/proc") == ["/proc"]
    assert len(mounts_below(parse(TABLE), "/")) == 6


@pytest.mark.parametrize(
    "directory", ["/", "/r/pods/u", "/r/pods/u2", "/r/pods/u/volumes/a/in side", "/none"]
)
def test_lines_without_a_directory_are_not_needed_to_find_what_is_below_it(directory: str) -> None:
    few = parse(TABLE, directory)
    assert mounts_below(few, directory) == mounts_below(parse(TABLE), directory)
    assert len(parse(TABLE, "/r/pods/u2")) == 1


def test_other_mounts_of_the_same_file_system() -> None:
    table = parse(
        TABLE
        + b"40 27 0:9 / /elsewhere rw - tmpfs tmpfs rw\n"
        + b"41 27 0:9 /part /r/part rw - tmpfs tmpfs rw\n"
    )
    assert references(table, "/elsewhere") == ["/r/pods/u/volumes/a"]
    assert references(table, "/r/part") == []
    assert references(table, "/nothing") == []


def test_selinux_labels() -> None:
    line = b"40 27 0:9 /a\\040b /r rw - ext4 /dev/x rw,seclabel,nodelalloc"
    (found,) = parse(line)
    assert (found.device, found.root, found.labels) == ("0:9", "/a b", True)
    assert [mount.labels for mount in parse(TABLE)] == [False] * 6


def test_shared_mounts() -> None:
    table = parse(TABLE)
    assert is_shared(table, "/r/pods/u/volumes/a/in side/x")
    assert not is_shared(table, "/r/pods/u2/volumes/a")
    assert not is_shared(table, "/r")
    assert not is_shared([], "/r")


@pytest.mark.parametrize("path", ["/", "/r", "/r/x"])
@pytest.mark.parametrize("shared", [False, True])
def test_the_newest_of_stacked_mounts_counts(path: str, shared: bool) -> None:
    for place in ("/", path):
        lines = [
            f"4{n} 27 0:9 / {place} rw {'shared:1 ' * on}- tmpfs t rw"
            for n, on in enumerate((not shared, shared))
        ]
        assert is_shared(parse("\n".join(lines).encode()), path) is shared


@pytest.mark.parametrize("separator", SEPARATORS)
def test_names_that_look_like_ends_of_lines(separator: str) -> None:
    forged = f"x{separator}9 1 0:1 / /etc rw - tmpfs tmpfs rw".replace(" ", r"\040")
    line = f"40 27 0:9 /{forged} /r/{separator} rw shared:1 - ext4 /dev/{separator} rw\n"
    assert [(m.path, m.shared) for m in parse(line.encode())] == [(f"/r/{separator}", True)]


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (rb"/a\134040", r"/a\040"),
        (rb"/a\011\012\040", "/a\t\n "),
        (b"/a\xff", "/a\udcff"),
        (rb"/\303\274", "/ü"),
        ("/ü".encode(), "/ü"),
    ],
)
def test_names_are_as_the_os_module_spells_them(field: bytes, path: str) -> None:
    (found,) = parse(b"40 27 0:9 / " + field + b" rw - ext4 /dev/vda rw\n")
    assert found.path == path
    assert os.fsencode(found.path) == path.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"b /r/pods/u rw,relatime - ext4 /dev/vda rw",
        b"1 2 3 4 5 6 7 8 9 10",
        b"40 27 0:9 / relative rw - ext4 /dev/vda rw",
        b"40 27 0:9 / /r rw ext4 /dev/vda rw",
        b"40 27 0:9 /",
        "\uff140 27 0:9 / /r rw - ext4 /dev/vda rw".encode(),
    ],
)
def test_malformed_lines_are_ignored(line: bytes) -> None:
    assert parse(line + b"\n" + TABLE) == parse(TABLE)


@pytest.mark.parametrize("separator", SEPARATORS + "\n\t \\\udcff")
def test_the_kernels_own_table(separator: str, tmp_path: Path) -> None:
    source, target = tmp_path / f"a{separator}b", tmp_path / f"t{separator}"
    source.mkdir()
    target.mkdir()
    mount(str(source), str(target), flags=MS_BIND)
    try:
        assert really_below(str(tmp_path)) == [str(target)]
    finally:
        unmount(str(target))
    assert really_below(str(tmp_path)) == []


# Detection of a user namespace from /proc/self/uid_map.


@pytest.mark.parametrize(
    ("uid_map", "inside"),
    [
        ("         0          0 4294967295\n", False),
        (None, False),
        ("", True),
        ("\n", True),
        ("         0     100000      65536\n", True),
        ("0 0 1\n1 100000 65536\n", True),
        ("0 0 4294967295 more\n", False),
        ("1 0 4294967295\n", True),
        ("0 0\n", False),
        ("not a map\n", False),
        ("0 0 " + "9" * 5000, True),
    ],
)
def test_only_the_identity_map_is_the_initial_namespace(uid_map: str | None, inside: bool) -> None:
    assert in_user_namespace(uid_map) is inside
