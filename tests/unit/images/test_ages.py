"""The file of image ages: its content, and the effect of a corrupt one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletpy.images import gc
from kubeletpy.images.gc import AGES_FILE, ImageAges, ages_text, read_ages
from kubeletpy.images.gc_selection import ImageRecord


def test_written_ages_are_read_back(tmp_path: Path) -> None:
    kept = ImageAges(tmp_path)
    assert kept.load(1000) == {}
    kept.save([ImageRecord("a", 1, False, 100.4, 0), ImageRecord("b", 1, True, 100, 900.6)])
    assert kept.load(1000) == {"a": (100, 0), "b": (100, 901)}
    assert (tmp_path / AGES_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [AGES_FILE]


def test_future_times_become_now() -> None:
    assert read_ages(b'{"images": {"a": [5000, 9000]}}', 1000) == {"a": (1000, 1000)}


@pytest.mark.parametrize(
    "entry", ["1", "[1]", "[1, 2, 3]", "[-1, 0]", '["1", 0]', "[NaN, 0]", "[true, 0]", "null"]
)
def test_invalid_entries_are_left_out(entry: str) -> None:
    text = f'{{"images": {{"bad": {entry}, "good": [1, 2]}}}}'
    assert read_ages(text.encode(), 1000) == {"good": (1, 2)}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"images": 1}', b"\xff", b"[" * 100_000, b" " * (5 << 20)]
)
def test_a_corrupt_file_makes_all_images_new(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / AGES_FILE).write_bytes(content)
    assert ImageAges(tmp_path).load(1000) == {}
    (notified,) = caplog.messages
    assert notified == "ages of images not read: all count as new"


def test_an_absent_directory_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ImageAges(tmp_path / "gone").save([])
    assert caplog.messages == ["ages of images not kept"]


def test_the_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "MOST_IMAGES", 2)
    records = [ImageRecord(str(n), 1, False, 0, n) for n in range(5)]
    text = ages_text([*records, ImageRecord("x" * 300, 1, False, 10, 99)])
    assert list(json.loads(text)["images"]) == ["4", "3"]
    assert len(read_ages(b'{"images": {"a": [1, 1], "b": [1, 1], "c": [1, 1]}}', 5)) == 2
