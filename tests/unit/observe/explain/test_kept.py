"""Failure start times of pods survive restarts of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.observe.explain.stuck import (
    CHECKS_PER_REFRESH,
    FILE_NAME,
    WRITE_CHECK_S,
    KeptTroubles,
)
from kubeletpy.podworkers.history import OVER_S, Troubles


async def test_the_next_agent_reads_failures(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    troubles = Troubles()
    troubles.failed("a", 100.0)
    await KeptTroubles(file, troubles).save()
    assert file.stat().st_mode & 0o777 == 0o600
    again = Troubles()
    await KeptTroubles(file, again).start()
    assert again.since("a", 200.0) == 100.0


async def test_the_next_agent_reads_refusals(tmp_path: Path) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    kept = KeptTroubles(file, troubles)
    await kept.start()
    troubles.ends("a", 100.0)
    await kept.save()
    again = Troubles()
    await KeptTroubles(file, again).start()
    assert again.ended_at("a") == 100.0
    file.unlink()
    for _ in range(CHECKS_PER_REFRESH):
        await kept.save()
    assert not file.exists(), "an end does not change"


async def test_it_is_written_when_a_series_begins_or_ends_and_periodically(
    tmp_path: Path,
) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    kept = KeptTroubles(file, troubles)
    await kept.start()
    await kept.save()
    assert not file.exists()
    troubles.failed("a", 1.0)
    await kept.save()
    file.unlink()
    written = 0
    for check in range(CHECKS_PER_REFRESH):
        troubles.failed("a", 2.0 + check)
        await kept.save()
        written += file.exists()
        file.unlink(missing_ok=True)
    assert written == 1
    troubles.removed("a")
    await kept.save()
    assert file.read_text() == "{}"
    assert WRITE_CHECK_S * CHECKS_PER_REFRESH < OVER_S


@pytest.mark.parametrize("content", ["", "[1]", '{"a": ', "[" * 100_000, '{"a": {}}'])
async def test_an_invalid_file_is_ignored(tmp_path: Path, content: str) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    file.write_text(content)
    await KeptTroubles(file, troubles).start()
    assert troubles.as_json() == {}


async def test_an_unwritable_directory_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    troubles = Troubles()
    kept = KeptTroubles(tmp_path / "none" / FILE_NAME, troubles)
    for uid in ("a", "b"):
        troubles.failed(uid, 1.0)
        await kept.save()
    assert [each.message for each in caplog.records] == [
        "after a restart the agent will have lost since when pods have been failing"
    ]
