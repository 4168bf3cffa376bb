"""A driver's call, and its record on the disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.files import VolumeData
from kubeletpy.volumes.csi.host import flushed_meanwhile


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
