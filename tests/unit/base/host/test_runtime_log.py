"""Links in a container's log directory: the one that is followed, and all that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletpy.base.host.files import NotBelow, open_container_log
from kubeletpy.server.logs.follow import LogFile, open_next
from kubeletpy.server.logs.records import read_json

ID = "ab" * 32
LINE = b'{"log":"hello\\n","stream":"stdout","time":"2026-01-01T00:00:00.5Z"}\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A pod's log that is a link to Docker's file."""
    tmp_path.chmod(0o755)
    own = tmp_path / "containers" / ID
    own.mkdir(parents=True)
    (own / f"{ID}-json.log").write_bytes(LINE)
    root = tmp_path / "pods"
    root.mkdir()
    (root / "0.log").symlink_to(own / f"{ID}-json.log")
    return root


def read(root: Path, container_id: str = ID) -> bytes:
    fd, _ = open_container_log(str(root), str(root / "0.log"), container_id)
    try:
        return os.read(fd, 1000)
    finally:
        os.close(fd)


def test_the_runtimes_own_link(logs: Path) -> None:
    record = read_json(read(logs).rstrip())
    assert record is not None
    assert record.text == b"hello\n"


def test_a_plain_log_is_opened(logs: Path) -> None:
    (logs / "0.log").unlink()
    (logs / "0.log").write_text("plain")
    assert read(logs) == b"plain"


@pytest.mark.parametrize("container_id", ["", "cd" * 32])
def test_logs_of_other_containers_are_refused(logs: Path, container_id: str) -> None:
    with pytest.raises(OSError, match=r"not this container's|Too many levels"):
        read(logs, container_id)


@pytest.mark.parametrize("target", ["/etc/shadow", f"../{ID}/{ID}-json.log", f"{ID}/{ID}-json.log"])
def test_other_files_are_refused(logs: Path, target: str) -> None:
    (logs / "0.log").unlink()
    (logs / "0.log").symlink_to(target)
    with pytest.raises(NotBelow):
        read(logs)


def test_links_of_other_users_are_refused(logs: Path) -> None:
    os.chown(logs / "0.log", 1000, 1000, follow_symlinks=False)
    with pytest.raises(NotBelow, match="not root's"):
        read(logs)


def test_files_of_other_users_are_refused(logs: Path) -> None:
    os.chown(logs / "0.log", 1000, 1000)
    with pytest.raises(NotBelow, match="only root's"):
        read(logs)


def test_directories_that_others_may_write_are_refused(logs: Path) -> None:
    (logs.parent / "containers" / ID).chmod(0o777)
    with pytest.raises(NotBelow, match="only root's"):
        read(logs)


def test_links_in_the_path_are_refused(logs: Path) -> None:
    own = logs.parent / "containers"
    own.rename(logs.parent / "elsewhere")
    own.symlink_to(logs.parent / "elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        read(logs)


def test_the_runtime_rotates_its_file(logs: Path) -> None:
    log = LogFile(str(logs), str(logs / "0.log"), container_id=ID)
    assert log.read() == LINE
    assert open_next(str(logs), log) is None
    file = Path(log.real_path)
    file.rename(f"{file}.1")
    assert open_next(str(logs), log) is None, "there is none at the moment"
    file.write_bytes(LINE * 2)
    following = open_next(str(logs), log)
    assert following is not None
    assert following.read() == LINE * 2
    log.close()
    following.close()
