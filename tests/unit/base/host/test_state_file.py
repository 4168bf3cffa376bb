"""The file of a component's newest state: canceled writers, failing disks, the end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletpy.base.host.state_file import StateFile, read_state
from tests.kit.virtual_time import on_virtual_time


class Component:
    """A component whose state is a text."""

    def __init__(self, path: Path, soon_s: float = 0.0) -> None:
        self.text = ""
        self.slow: dict[str, tuple[threading.Event, threading.Event]] = {}
        self.file = StateFile(path, self._capture, "state not written", soon_s=soon_s)

    def _capture(self) -> Callable[[], str]:
        text = self.text

        def render() -> str:
            if text in self.slow:
                begun, go_on = self.slow[text]
                begun.set()
                go_on.wait(10)
            return text

        return render


async def test_a_write_that_was_canceled_never_replaces_a_newer_state(tmp_path: Path) -> None:
    """Its thread goes on: the next write waits for it."""
    component = Component(tmp_path / "state")
    begun, go_on = component.slow["before"] = threading.Event(), threading.Event()
    component.text = "before"
    old = asyncio.create_task(component.file.write())
    await asyncio.to_thread(begun.wait, 10)
    old.cancel()
    await asyncio.wait([old])
    component.text = "after"
    newer = asyncio.create_task(component.file.write())
    await asyncio.wait([newer], timeout=0.05)
    assert not newer.done()
    go_on.set()
    await newer
    await component.file.close()
    assert read_state(tmp_path / "state") == b"after"


async def test_a_change_during_a_write_is_written_after_it(tmp_path: Path) -> None:
    component = Component(tmp_path / "state")
    begun, go_on = component.slow["first"] = threading.Event(), threading.Event()
    component.text = "first"
    component.file.write_soon()
    await asyncio.to_thread(begun.wait, 10)
    component.text = "second"
    component.file.write_soon()
    written, free = component.slow["second"] = threading.Event(), threading.Event()
    free.set()
    go_on.set()
    assert await asyncio.to_thread(written.wait, 10)
    await component.file.close()
    assert read_state(tmp_path / "state") == b"second"


@on_virtual_time
async def test_a_failed_write_is_logged_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    component = Component(tmp_path / "gone" / "state", soon_s=1)
    component.text = "first"
    with caplog.at_level(logging.WARNING):
        component.file.write_soon()
        await asyncio.sleep(100)
        with pytest.raises(FileNotFoundError):
            await component.file.write()
    assert [record.message for record in caplog.records] == ["state not written"]
    (tmp_path / "gone").mkdir()
    component.text = "second"
    await asyncio.sleep(31)
    assert read_state(component.file.path) == b"second"
    await component.file.close()


@on_virtual_time
async def test_what_is_not_in_the_file_is_written_at_the_end(tmp_path: Path) -> None:
    component = Component(tmp_path / "state", soon_s=60)
    component.text = "last"
    component.file.write_soon()
    await component.file.close()
    assert read_state(component.file.path) == b"last"


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"12345")
    assert read_state(tmp_path / "state", 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_state(tmp_path / "state", 4)
