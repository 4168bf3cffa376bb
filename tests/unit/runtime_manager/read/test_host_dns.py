"""The host's resolver configuration: which files can be used (docs/reference/behaviour.md, i11)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletpy.runtime_manager.config.sandbox_config import ResolvConfError, ResolverConfig
from kubeletpy.runtime_manager.read.host_dns import MAX_BYTES, host_dns


def _directory(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_BYTES + 1)


UNUSABLE: list[tuple[str, Callable[[Path], object], str]] = [
    ("missing", lambda path: None, "No such file or directory"),
    ("directory", _directory, "Is a directory"),
    ("pipe", os.mkfifo, "it is not a regular file"),
    ("socket", _socket, "No such device or address"),
    ("terminal", lambda path: path.symlink_to("/dev/zero"), "it is not a regular file"),
    ("dangling link", lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    ("link to itself", lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ("huge", _huge, "it is larger than 10 MiB"),
    ("binary", lambda path: path.write_bytes(b"\x7fELF\0\0"), "it is not a text file"),
    ("no server", lambda path: path.write_text("nameserver\n"), "names no server"),
]


@pytest.mark.parametrize(("make", "why"), [r[1:] for r in UNUSABLE], ids=[r[0] for r in UNUSABLE])
def test_a_file_that_cannot_be_used_is_named(
    make: Callable[[Path], object], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "resolv.conf"
    make(path)
    with pytest.raises(ResolvConfError) as caught:
        host_dns(str(path))
    assert f"resolvConf {path} cannot be used: " in str(caught.value)
    assert why in str(caught.value)


def test_files_that_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_bytes("# caf\u00e9\nnameserver 192.0.2.53\n".encode("latin-1"))
    assert host_dns(str(path)) == ResolverConfig(("192.0.2.53",))
    path.write_text("")
    assert host_dns(str(path)) == ResolverConfig()
    assert host_dns("/dev/null") == ResolverConfig()
    assert host_dns("") is None
