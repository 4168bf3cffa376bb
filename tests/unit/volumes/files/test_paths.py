"""Paths of a pod's files on the node, and refused names and paths."""

from __future__ import annotations

import pytest

from kubeletpy.volumes.files.paths import (
    MAX_FILE_NAME,
    MAX_PATH,
    PodPaths,
    UnsafePath,
    payload_path,
    safe_name,
    sub_path_parts,
)

PATHS = PodPaths("/k/pods", "u")
LONGEST = "d/" * (MAX_PATH // 2 - 1) + "dd"


def test_the_layout_is_the_kubelets() -> None:
    assert (PATHS.volume("secret", "v"), PATHS.sub_path("v", "c", 3)) == (
        "/k/pods/u/volumes/kubernetes.io~secret/v",
        "/k/pods/u/volume-subpaths/v/c/3",
    )
    assert (PATHS.hosts_file, PATHS.container_dir("c")) == (
        "/k/pods/u/etc-hosts",
        "/k/pods/u/containers/c",
    )
    plugin = "/k/pods/u/plugins/kubernetes.io~empty-dir"
    assert PATHS.ready_marker("emptyDir", "v") == f"{plugin}/v/ready"
    assert PATHS.ready_marker("configMap", "v") == f"{plugin}/wrapped_v/ready"


@pytest.mark.parametrize("name", ["a", "...", "..a", "n" * MAX_FILE_NAME])
def test_names(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "n" * (MAX_FILE_NAME + 1)])
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(UnsafePath):
        safe_name(name)


@pytest.mark.parametrize("path", [LONGEST, "n" * MAX_FILE_NAME, "ä" * 127 + "n"])
def test_the_longest_paths(path: str) -> None:
    assert payload_path(path) == path
    assert "/".join(sub_path_parts(path)) == path
    with pytest.raises(UnsafePath, match=r"less than or equal to|names must be at most"):
        payload_path(path + "n")


@pytest.mark.parametrize(
    ("path", "parts"),
    [("", []), (".", []), ("a", ["a"]), ("./a//b/", ["a", "b"]), ("..a", ["..a"])],
)
def test_parts_of_a_volume(path: str, parts: list[str]) -> None:
    assert sub_path_parts(path) == parts


@pytest.mark.parametrize("path", ["/a", "..", "a/../b", "a\0b", LONGEST + "n"])
def test_unsafe_sub_paths_are_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        sub_path_parts(path)
