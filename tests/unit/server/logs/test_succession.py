"""The next file of a log, whichever files have been renamed, compressed or removed."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from kubeletpy.server.logs.follow import BLOCK, LogFile, LogFileEntry, next_entry, open_next

LOG = "0.log"


def entry(name: str, number: int, modified: int | None = None, size: int = 9) -> LogFileEntry:
    """A file with that inode; its time of modification is the same number by default."""
    return LogFileEntry(name, (1, number), number if modified is None else modified, size)


NOW = entry(LOG, 40)
OLD = [entry(f"{LOG}.1", 10), entry(f"{LOG}.2", 20), entry(f"{LOG}.3", 30)]
PACKED = [entry(f"{LOG}.1.gz", 91, 10), entry(f"{LOG}.2.gz", 92, 20), OLD[2]]


@pytest.mark.parametrize(
    ("entries", "number", "expected"),
    [
        ([NOW], 40, None),
        ([*OLD, NOW], 40, None),
        ([*OLD, NOW], 30, LOG),
        ([*OLD, NOW], 10, f"{LOG}.2"),
        ([NOW, *reversed(OLD)], 20, f"{LOG}.3"),
        (OLD, 30, None),  # the runtime has not opened a new one
        ([*OLD, entry(LOG, 40, size=0)], 30, None),  # nor written to it
        ([*OLD, entry(LOG, 40, size=0)], 20, f"{LOG}.3"),
        ([*PACKED, NOW], 10, f"{LOG}.2.gz"),
        ([*PACKED, NOW], 20, f"{LOG}.3"),
        ([*PACKED, NOW], 91, f"{LOG}.2.gz"),  # a compressed file is being read
        ([*PACKED[1:], NOW], 10, f"{LOG}.2.gz"),  # the one that was read has been removed
        ([*PACKED[2:], NOW], 10, f"{LOG}.3"),
        ([NOW], 10, LOG),
        ([OLD[0], entry(f"{LOG}.1.gz", 91, 99), NOW], 10, LOG),  # the file is being compressed
        ([OLD[0], entry(f"{LOG}.1.tmp", 91, 99), NOW], 10, LOG),
        ([entry(f"{LOG}.3", 30), entry(LOG, 30)], 30, None),  # the file gets its name back
        ([entry("10.log.3", 99), entry("0.logs", 98), OLD[0]], 10, None),
    ],
)
def test_next(entries: list[LogFileEntry], number: int, expected: str | None) -> None:
    found = next_entry(LOG, entries, (1, number), number)
    assert (found and found.name) == expected


def test_a_compressed_file_is_read_in_blocks(tmp_path: Path) -> None:
    text = os.urandom(1000) * 5000 + b"end"
    with gzip.open(tmp_path / "0.log.1.gz", "wb") as file:
        file.write(text)
    log = LogFile(str(tmp_path), str(tmp_path / LOG), "0.log.1.gz")
    pieces = list(iter(log.read, b""))
    log.close()
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= BLOCK


def test_an_invalid_gzip_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0.log.1.gz").write_bytes(b"no such thing")
    log = LogFile(str(tmp_path), str(tmp_path / LOG), "0.log.1.gz")
    with pytest.raises(OSError, match="compressed"):
        log.read()
    log.close()


def test_links_and_folders_are_not_next(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("old")
    log = LogFile(str(tmp_path), str(tmp_path / LOG))
    (tmp_path / LOG).rename(tmp_path / "0.log.1")
    (tmp_path / "0.log.2").symlink_to("/etc/passwd")
    (tmp_path / "0.log.3").mkdir()
    (tmp_path / LOG).symlink_to("/etc/passwd")
    assert open_next(str(tmp_path), log) is None
    log.close()
