"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host import files
from kubeletpy.base.host.files import (
    NotBelow,
    Tree,
    holds_mount,
    open_container_log,
    read_or_make,
    remove_tree,
    remove_unfinished,
    write_private,
    write_whole,
)
from kubeletpy.images.records.model import PulledRecord
from kubeletpy.images.records.store import RecordFiles
from kubeletpy.podworkers.pod_directories import remove_orphan
from kubeletpy.server.logs.follow import LogFile, open_next
from kubeletpy.server.logs.records import read_json
from kubeletpy.volumes.csi import files as csi_files
from kubeletpy.volumes.files.paths import PodPaths
from kubeletpy.volumes.files.safe_path import give_to_group
from kubeletpy.volumes.pod_volumes.set_up import take_down
from tests.kit.costs import open_descriptors

Write = Callable[[Path, int], Path]
"""Writes content number n below a folder; returns the file."""


def _private(folder: Path, number: int) -> Path:
    write_private(folder / "f", f"content {number}")
    return folder / "f"


def _whole(folder: Path, number: int) -> Path:
    write_whole(folder / "f", f"content {number}", mode=0o644, flushed=False)
    return folder / "f"


def _vol_data(folder: Path, number: int) -> Path:
    file = folder / "vol_data.json"
    csi_files.write(str(file), csi_files.VolumeData("driver", f"handle {number}"))
    return file


def _intent(folder: Path, number: int) -> Path:
    files = RecordFiles(folder)
    files.load()
    files.write_intent("image")
    (file,) = (folder / "image_manager" / "pulling").iterdir()
    return file


def _record(folder: Path, number: int) -> Path:
    files = RecordFiles(folder)
    files.load()
    files.write_record(PulledRecord("image", updated_at=number))
    (file,) = (folder / "image_manager" / "pulled").iterdir()
    return file


WRITERS: list[Write] = [_private, _whole, _vol_data, _intent, _record]
FLUSHED: list[Write] = [_private, _intent, _record]


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _check_failed_write(
    write: Write, folder: Path, patch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """For each disk error, a failed write keeps the old file and leaves nothing else."""
    file = write(folder, 1)
    before = _files(folder)
    assert before.keys() == {file}
    for number in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO):
        with patch.context() as now, pytest.raises(OSError) as raised:
            now.setattr(where, name, _fails(number))
            write(folder, 2)
        assert raised.value.errno == number
        assert _files(folder) == before


def test_a_file_is_replaced_and_readable_by_root_only(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("a longer one")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("where", "name"), [(os, "open"), (Path, "replace")], ids=["open", "rename"]
)
@pytest.mark.parametrize("write", WRITERS)
def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, where: Any, name: str
) -> None:
    _check_failed_write(write, tmp_path, monkeypatch, where, name)


@pytest.mark.parametrize("write", FLUSHED)
def test_a_failed_fsync_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    _check_failed_write(write, tmp_path, monkeypatch, os, "fsync")


@pytest.mark.parametrize("write", WRITERS)
def test_a_disk_that_is_full_in_the_middle(tmp_path: Path, write: Write) -> None:
    """The part that was written is removed."""
    write(tmp_path, 1)
    kept = _files(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    try:
        with pytest.raises(OSError) as raised:
            write(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert raised.value.errno == errno.EFBIG
    assert _files(tmp_path) == kept


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    remove_unfinished(tmp_path / "nowhere")
    for name in ("state", ".hidden", ".state.0a1b2c3", ".state.0A1B2C3D", "state.0a1b2c3d"):
        (tmp_path / name).touch()
    (tmp_path / ".folder.0a1b2c3d").mkdir()
    kept = set(tmp_path.iterdir())
    (tmp_path / ".link.0a1b2c3d").symlink_to(tmp_path / "state")
    child = os.fork()
    if not child:
        Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign,assignment]
        write_private(tmp_path / "state", b"x")
        os._exit(1)
    os.waitpid(child, 0)
    assert len(set(tmp_path.iterdir()) - kept) == 2
    remove_unfinished(tmp_path)
    assert set(tmp_path.iterdir()) == kept


@pytest.mark.parametrize("there", [None, b"", b"short"])
def test_random_bytes_are_created_once(tmp_path: Path, there: bytes | None) -> None:
    file = tmp_path / "key"
    if there is not None:
        file.write_bytes(there)
    made = read_or_make(file)
    assert len(made) == 32
    assert read_or_make(file) == made
    assert file.stat().st_mode & 0o777 == 0o600


def _fails(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


# Directory trees that containers made: deep, wide, full of links, and changing meanwhile.

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


# Links in a container's log directory: the one that is followed, and all that are refused.

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
