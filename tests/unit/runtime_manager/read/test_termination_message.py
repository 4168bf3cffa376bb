"""Last words: read from files that a container may have made anything of."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.container_files import (
    create_termination_file,
    link_log,
    remove_logs,
    remove_termination_file,
    restart_count_by_logs,
)
from kubeletpy.runtime_manager.names.labels import (
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
)
from kubeletpy.runtime_manager.names.log_paths import UnsafeName
from kubeletpy.runtime_manager.read.termination_message import (
    has_message_source,
    last_log_text,
    read_termination_message,
)


def status(
    path: Path | str, log: Path | str = "", policy: str = "FallbackToLogsOnError", code: int = 1
) -> cri.ContainerStatus:
    return cri.ContainerStatus(
        state=cri.CONTAINER_EXITED,
        exit_code=code,
        log_path=str(log),
        annotations={TERMINATION_MESSAGE_PATH: "/dev/log", TERMINATION_MESSAGE_POLICY: policy},
        mounts=[cri.Mount(container_path="/dev/log", host_path=str(path))],
    )


def test_last_bytes_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 5000 + b"\xff end")
    message = read_termination_message(status(file))
    assert len(message) == 4096
    assert message.endswith("\ufffd end")
    file.write_bytes(b"")
    assert read_termination_message(status(file)) == ""
    assert read_termination_message(status(tmp_path / "absent")) == ""


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    link, fifo, directory = tmp_path / "link", tmp_path / "fifo", tmp_path / "dir"
    link.symlink_to(secret)
    os.mkfifo(fifo)
    directory.mkdir()
    found: list[str] = []

    def read(path: Path | str) -> None:
        found.append(read_termination_message(status(path)))

    for path in (link, fifo, directory, "/dev/zero"):
        reader = threading.Thread(target=read, args=(path,))
        reader.start()
        reader.join(5)
        assert not reader.is_alive(), f"reading {path} waits"
    assert all(text.startswith("Error on reading termination log ") for text in found)
    assert "hunter2" not in "".join(found)


def test_fall_back_to_logs(tmp_path: Path) -> None:
    log, file = tmp_path / "0.log", tmp_path / "f"
    log.write_text("2026-01-01T00:00:00Z stderr F it broke\n")
    assert read_termination_message(status(file, log)) == "it broke\n"
    assert read_termination_message(status(file, log, code=0)) == ""
    assert read_termination_message(status(file, log, policy="File")) == ""
    broken = status(file, log)
    broken.reason = "ContainerCannotRun"
    assert read_termination_message(broken) == ""
    file.write_text("own words")
    assert read_termination_message(status(file, log)) == "own words"


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
    log = tmp_path / "0.log"
    with log.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n2026-01-01T00:00:00Z stdout F end\n")
    assert read_termination_message(status(tmp_path / "none", log)) == "end\n"


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
    remove_logs(str(root), str(root / ".." / "outside.log"), [])
    remove_logs(str(root), str(log), [str(link), str(outside)])
    assert outside.exists()
    assert [path.name for path in log.parent.iterdir()] == ["00.log"]
    assert not link.is_symlink()
    assert restart_count_by_logs(str(log.parent)) == 1
