"""Where the agent keeps its own files for a container."""

from __future__ import annotations

import pytest

from kubeletpy.runtime_manager.names import UnsafeName, container_parts, termination_file


def test_the_directory_of_a_container() -> None:
    assert container_parts("uid-1", "app") == ("pods", "uid-1", "containers", "app")
    assert container_parts("a.b", "..c") == ("pods", "a.b", "containers", "..c")


@pytest.mark.parametrize("part", ["", "a/b", "a\0b", ".", ".."])
def test_names_that_lead_elsewhere(part: str) -> None:
    for uid, container in ((part, "app"), ("uid-1", part)):
        with pytest.raises(UnsafeName, match="cannot be part of a path"):
            container_parts(uid, container)
        assert termination_file("/root", uid, container, "/root/pods/u/containers/c/0a1b2c3d") == ""


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        (
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
        ),
        # the runtime has resolved a link
        (
            "/var/lib/kubelet/",
            "/data/kubelet/pods/uid-1/containers/app/0a1b2c3d",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
        ),
        ("/root", "/root/pods/uid-1/containers/app/0A1B2C3D", ""),
        ("/root", "/root/pods/uid-1/containers/app/0a1b2c3d4", ""),
        ("/root", "/root/pods/uid-1/containers/other/0a1b2c3d", ""),
        ("/root", "/root/pods/uid-2/containers/app/0a1b2c3d", ""),
        ("/root", "/rootpods/uid-1/containers/app/0a1b2c3d", ""),
        ("/root", "/etc/passwd", ""),
        ("/root", "", ""),
    ],
)
def test_the_file_for_a_termination_message(root: str, path: str, expected: str) -> None:
    assert termination_file(root, "uid-1", "app", path) == expected
