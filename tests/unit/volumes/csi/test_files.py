"""vol_data.json: written atomically, and checked when read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.files import DataUnreadable, VolumeData

DATA = VolumeData("d", "h", "pv", "n", "csi-a", "Persistent")
KUBELETS = (
    b'{"attachmentID":"csi-a","driverName":"d","nodeName":"n","specVolID":"pv",'
    b'"volumeHandle":"h","volumeLifecycleMode":"Persistent"}\n'
)


def test_it_is_the_kubelets() -> None:
    assert files.encode(DATA) == KUBELETS
    assert files.decode(KUBELETS) == DATA
    assert files.decode(b'{"driverName":"d","volumeHandle":"h","later":1}') == VolumeData("d", "h")


def test_written_read_and_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "vol_data.json")
    assert files.read(path) is None
    assert files.write(path, DATA)
    files.flush(path)
    assert files.read(path) == DATA
    before = os.stat(path).st_ino  # noqa: PTH116
    assert not files.write(path, DATA)
    assert os.stat(path).st_ino == before  # noqa: PTH116
    (tmp_path / ".vol_data.json.0123").touch()
    files.remove(path)
    files.remove(path)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "vol_data.json")
    files.write(path, DATA)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        files.write(path, VolumeData("other", "h"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["vol_data.json"]
    assert files.read(path) == DATA


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        KUBELETS[:40],
        b"[]",
        b"null",
        b"[" * 50_000,
        b'{"driverName":"d"}',
        b'{"driverName":"d","volumeHandle":3}',
        json.dumps({"driverName": "d", "volumeHandle": "x" * 70_000}).encode(),
    ],
)
def test_torn(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vol_data.json"
    path.write_bytes(content)
    with pytest.raises(DataUnreadable):
        files.read(str(path))


def test_no_link_and_no_pipe_is_read(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(KUBELETS)
    (tmp_path / "link").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(DataUnreadable):
            files.read(str(tmp_path / name))
