"""vol_data.json: written atomically, and checked when read."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.files import DataUnreadable, VolumeData
from kubeletpy.volumes.csi.host import flushed_meanwhile

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


# A driver's call, and its record on the disk.


async def test_the_disk_is_not_waited_for_before_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, called = str(tmp_path / "vol_data.json"), threading.Event()
    flushed: list[bool] = []

    def flush(_: str) -> None:
        flushed.append(called.wait(30))

    async def call() -> str:
        called.set()
        return "answer"

    monkeypatch.setattr(files, "flush", flush)
    assert files.write(path, VolumeData("d", "h"))
    assert await flushed_meanwhile(path, call(), written=True) == "answer"
    assert flushed == [True]
    assert await flushed_meanwhile(path, call(), written=False) == "answer"
    assert flushed == [True], "what was not written is not flushed"


async def test_a_failing_disk_makes_the_outcome_uncertain(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="No such file") as failed:
        await flushed_meanwhile(str(tmp_path / "gone"), asyncio.sleep(0), written=True)
    assert failed.value.outcome is FailureOutcome.UNCERTAIN


async def test_an_error_of_the_driver_comes_first(tmp_path: Path) -> None:
    async def refused() -> None:
        raise OperationFailed(FailureOutcome.FINAL, "no")

    with pytest.raises(OperationFailed) as failed:
        await flushed_meanwhile(str(tmp_path / "gone"), refused(), written=True)
    assert failed.value.outcome is FailureOutcome.FINAL
