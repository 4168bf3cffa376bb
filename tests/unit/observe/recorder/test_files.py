"""The recording on disk: bounded, readable by root only, each file self-contained."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kubeletpy.observe.recorder.files import (
    FEWEST_FILES,
    FILES,
    HEADS,
    MOST_FILES,
    RecordingFiles,
    read_lines,
    recordings,
    since,
)


def write(files: RecordingFiles, number: int, size: int) -> None:
    if files.full:
        files.start([f"head {number}".encode()])
    files.write([f"{number:x<{size - 1}}".encode()])


def test_the_oldest_file_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "recorder"
    files = RecordingFiles(directory, FILES * 100)
    for number in range(60):
        write(files, number, 50)
        sizes = [path.stat().st_size for path in recordings(directory)]
        assert len(sizes) < FILES
        assert sum(sizes) <= FILES * 150
    files.close()
    assert [path.name for path in recordings(directory)][-1] == "00000030.jsonl"
    lines = list(read_lines(recordings(directory)))
    assert lines[-1].startswith(b"59x")
    assert sum(line.startswith(b"head") for line in lines) == FILES - 1


def test_a_large_head_makes_a_larger_file(tmp_path: Path) -> None:
    limit = FILES * FEWEST_FILES * 100
    for head, largest in ((70, FEWEST_FILES * 100), (100, HEADS * 100), (500, FILES * 100)):
        files = RecordingFiles(tmp_path, limit)
        for number in range(2 * limit // 50):
            if files.full:
                files.start([b"x" * (head - 1)])
            files.write([f"{number:x<49}".encode()])
            found = [path.stat().st_size for path in recordings(tmp_path)]
            assert sum(found) <= limit + 50
        files.close()
        assert max(found) - largest in range(50), head
        assert found.count(max(found)) >= FEWEST_FILES - 1


def test_restarts_do_not_remove_earlier_recordings_too_soon(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 5):
        files = RecordingFiles(tmp_path, FILES * 2000)
        write(files, number, 20)
        files.close()
    found = recordings(tmp_path)
    assert len(found) == MOST_FILES
    assert found[-1].read_text().splitlines()[0] == "head 260"
    for _ in range(3):
        files = RecordingFiles(tmp_path, FILES * 1000)
        write(files, 0, 900)
        files.close()
        assert sum(path.stat().st_size for path in recordings(tmp_path)) <= FILES * 1000


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    os.umask(0)
    files = RecordingFiles(tmp_path / "r", 1000)
    files.start([b"head"])
    files.close()
    (path,) = recordings(tmp_path / "r")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_restarted_agent_begins_another_file(tmp_path: Path) -> None:
    for life in ("a", "b"):
        files = RecordingFiles(tmp_path, 1000)
        assert files.full
        files.start([life.encode()])
        assert not files.full
        files.close()
        assert files.full
        files.write([b"after the end"])
    (tmp_path / "note.jsonl").write_text("of somebody else")
    assert list(read_lines(recordings(tmp_path))) == [b"a\n", b"b\n"]


def test_files_since(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in (1, 2, 10)]
    for path, at in zip(paths, (100, 200, 300), strict=True):
        path.touch()
        os.utime(path, (at, at))
    assert recordings(tmp_path) == paths
    assert since(paths, 50) == paths
    assert since(paths, 200) == paths[1:]
    assert since(paths, 201) == paths[2:]
    assert since(paths, 999) == paths[2:], "the newest one is there in any case"
    assert since([], 0) == []
