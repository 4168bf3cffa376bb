"""Termination messages, read from files that a container can replace with anything."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.container_files import (
    create_termination_file,
    link_log,
    log_sizes,
    remove_logs,
    remove_termination_file,
)
from kubeletpy.runtime_manager.names import (
    CONTAINER_NAME,
    POD_UID,
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
    UnsafeName,
)
from kubeletpy.runtime_manager.read.status_source import (
    MessageRoots,
    has_message_source,
    last_log_text,
    read_termination_message,
)

LOGS = "logs"


def roots(root: Path) -> MessageRoots:
    return MessageRoots(str(root), str(root / LOGS))


def status(
    path: Path | str, log: Path | str = "", policy: str = "FallbackToLogsOnError", code: int = 1
) -> cri.ContainerStatus:
    return cri.ContainerStatus(
        state=cri.CONTAINER_EXITED,
        exit_code=code,
        log_path=str(log),
        labels={POD_UID: "uid", CONTAINER_NAME: "app"},
        annotations={TERMINATION_MESSAGE_PATH: "/dev/log", TERMINATION_MESSAGE_POLICY: policy},
        mounts=[cri.Mount(container_path="/dev/log", host_path=str(path))],
    )


def own_file(root: Path) -> Path:
    return Path(create_termination_file(str(root), "uid", "app"))


def log_file(root: Path) -> Path:
    folder = root / LOGS / "ns_pod_uid" / "app"
    folder.mkdir(parents=True)
    return folder / "0.log"


def test_last_bytes_of_the_file(tmp_path: Path) -> None:
    file = own_file(tmp_path)
    file.write_bytes(b"x" * 5000 + b"\xff end")
    message = read_termination_message(status(file), roots(tmp_path))
    assert len(message) == 4096
    assert message.endswith("\ufffd end")
    file.write_bytes(b"")
    assert read_termination_message(status(file), roots(tmp_path)) == ""
    file.unlink()
    assert read_termination_message(status(file), roots(tmp_path)) == ""


def test_a_root_directory_that_the_runtime_names_otherwise(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    file = own_file(tmp_path)
    file.write_text("bye")
    link = roots(tmp_path / "link")
    assert read_termination_message(status(file), link) == "bye"


def test_only_the_file_that_the_agent_made_is_read(tmp_path: Path) -> None:
    """A volume may be mounted at the same path: its file is no termination message."""
    root, file = tmp_path / "root", "0123abcd"
    for folder in ("etc", "pods/uid/containers/other", "pods/else/containers/app"):
        (root / folder).mkdir(parents=True)
        (root / folder / file).write_text("hunter2")
        assert read_termination_message(status(root / folder / file), roots(root)) == ""
    named = root / "pods" / "uid" / "containers" / "app"
    named.mkdir(parents=True)
    (named / "shadow").write_text("hunter2")
    assert read_termination_message(status(named / "shadow"), roots(root)) == ""
    assert read_termination_message(status(f"{named}/../../../../etc/{file}"), roots(root)) == ""


@pytest.mark.parametrize("swapped", ["uid", "uid/containers", "uid/containers/app"])
def test_a_parent_that_was_swapped_for_a_link(tmp_path: Path, swapped: str) -> None:
    root = tmp_path / "root"
    file = own_file(root)
    parent = root / "pods" / swapped
    outside = tmp_path / "outside"
    parent.rename(outside)
    parent.symlink_to(outside)
    file.write_text("hunter2")
    stated = read_termination_message(status(file), roots(root))
    assert stated.startswith("Error on reading termination log ")
    assert "hunter2" not in stated
    remove_termination_file(str(root), "uid", "app", str(file))
    assert file.read_text() == "hunter2", "what is behind a link is not removed either"
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        own_file(root)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    folder = own_file(tmp_path).parent
    link, fifo, directory = folder / "00000001", folder / "00000002", folder / "00000003"
    link.symlink_to(secret)
    os.mkfifo(fifo)
    directory.mkdir()
    found: list[str] = []

    def read(path: Path) -> None:
        found.append(read_termination_message(status(path), roots(tmp_path)))

    for path in (link, fifo, directory):
        reader = threading.Thread(target=read, args=(path,))
        reader.start()
        reader.join(5)
        assert not reader.is_alive(), f"reading {path} waits"
    assert len(found) == 3
    assert all(text.startswith("Error on reading termination log ") for text in found)
    assert "hunter2" not in "".join(found)


def test_fall_back_to_logs(tmp_path: Path) -> None:
    log, file, at = log_file(tmp_path), own_file(tmp_path), roots(tmp_path)
    log.write_text("2026-01-01T00:00:00Z stderr F it broke\n")
    assert read_termination_message(status(file, log), at) == "it broke\n"
    assert read_termination_message(status(file, log, code=0), at) == ""
    assert read_termination_message(status(file, log, policy="File"), at) == ""
    broken = status(file, log)
    broken.reason = "ContainerCannotRun"
    assert read_termination_message(broken, at) == ""
    file.write_text("own words")
    assert read_termination_message(status(file, log), at) == "own words"


def test_a_log_that_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    file, log = own_file(tmp_path), log_file(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0.log").write_text("2026-01-01T00:00:00Z stderr F hunter2\n")
    stated = [read_termination_message(status(file, outside / "0.log"), roots(tmp_path))]
    log.parent.rmdir()
    log.parent.symlink_to(outside)
    stated.append(read_termination_message(status(file, log), roots(tmp_path)))
    assert all(
        text.startswith("Error on reading termination message from logs: ") for text in stated
    )
    assert "hunter2" not in "".join(stated)
    remove_logs(str(tmp_path / LOGS), str(log), "")
    assert (outside / "0.log").exists()


def test_log_text() -> None:
    stamp = b"2026-01-01T00:00:00.000000000Z"
    lines = [stamp + b" stdout F line %d" % n for n in range(200)]
    text = last_log_text(b"\n".join(lines) + b"\n")
    assert text.startswith("line 120\n")
    assert text.endswith("line 199\n")
    assert text.count("\n") == 80
    long = last_log_text(stamp + b" stdout P " + b"y" * 5000 + b"\n" + stamp + b" stdout F z\n")
    assert len(long) == 2048
    assert long.endswith("yz\n")
    assert last_log_text(b'{"log":"a\\n","stream":"stdout"}\n{"log":5}\n{broken\n') == "a\n"
    assert last_log_text(b"cut record\n" + stamp + b" stderr F ok") == "ok\n"
    assert last_log_text(b"\x00" * 1000) == ""
    assert last_log_text(b"") == ""


def test_a_huge_log_is_read_at_its_end(tmp_path: Path) -> None:
    log = log_file(tmp_path)
    with log.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n2026-01-01T00:00:00Z stdout F end\n")
    assert read_termination_message(status("", log), roots(tmp_path)) == "end\n"


def test_whether_there_is_anything_to_read() -> None:
    assert has_message_source(status("/f"))
    running = status("/f")
    running.state = cri.CONTAINER_RUNNING
    assert not has_message_source(running)
    assert not has_message_source(cri.ContainerStatus(state=cri.CONTAINER_EXITED))


def test_termination_file(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        path = Path(create_termination_file(str(tmp_path), "uid", "app"))
    finally:
        os.umask(old)
    assert path.parent == tmp_path / "pods" / "uid" / "containers" / "app"
    assert path.stat().st_mode & 0o777 == 0o666
    assert len(path.name) == 8
    remove_termination_file(str(tmp_path), "uid", "app", "/etc/hostname")
    remove_termination_file(str(tmp_path), "uid", "app", str(path))
    assert not path.exists()


@pytest.mark.parametrize("name", ["..", "a/b", "", ".", "a\0"])
def test_unsafe_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeName):
        create_termination_file(str(tmp_path), "uid", name)
    with pytest.raises(UnsafeName):
        create_termination_file(str(tmp_path), name, "app")


def test_logs_are_removed_below_their_root_only(tmp_path: Path) -> None:
    root, outside = tmp_path / "pods", tmp_path / "outside.log"
    (root / "p" / "c").mkdir(parents=True)
    log = root / "p" / "c" / "0.log"
    for file in (log, Path(f"{log}.1"), root / "p" / "c" / "00.log", outside):
        file.touch()
    link = tmp_path / "links" / "l.log"
    link_log(str(root / "none.log"), str(link))
    assert not link.is_symlink()
    link_log(str(log), str(link))
    link_log(str(log), str(link))
    assert link.resolve() == log
    remove_logs(str(root), str(root / ".." / "outside.log"), "")
    remove_logs(str(root), str(log), str(link))
    remove_logs(str(root), str(log), str(outside))
    assert outside.exists()
    assert [path.name for path in log.parent.iterdir()] == ["00.log"]
    assert not link.is_symlink()
    (log.parent / "1.log").write_text("text")
    (log.parent / "2.log").symlink_to("elsewhere")
    (log.parent / "3.log").mkdir()
    sizes = {"00.log": 0, "1.log": 4, "2.log": len("elsewhere")}
    assert log_sizes(str(log.parent)) == sizes
    assert log_sizes(str(root / "none")) == {}
    assert log_sizes(str(outside)) == {}
