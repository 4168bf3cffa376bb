"""Times of the last shutdown, kept across the reboot."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.node.shutdown import shutdown_manager

WHEN = 1_700_000_000.25


@pytest.mark.parametrize("times", [{"start": WHEN}, {"start": WHEN, "end": WHEN + 9}])
def test_times_survive_a_round_trip(tmp_path: Path, times: dict[str, float]) -> None:
    shutdown_manager.write_times(tmp_path, {"start": 1.0, "end": 2.0})
    shutdown_manager.write_times(tmp_path, times)
    assert shutdown_manager.read_times(tmp_path) == times


def test_no_file_means_no_times(tmp_path: Path) -> None:
    assert shutdown_manager.read_times(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "times"),
    [
        # as the kubelet writes them
        (
            '{"startTime":"2023-11-14T22:13:20.250000000Z","endTime":"2023-11-14T23:13:20.25+01:00"}',
            {"start": WHEN, "end": WHEN},
        ),
        ('{"startTime":"2023-11-14T22:13:20.25Z","endTime":null}', {"start": WHEN}),
        ('{"startTime":"0001-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}', {}),
        ("{}", {}),
    ],
)
def test_a_kubelet_wrote_it(tmp_path: Path, text: str, times: dict[str, float]) -> None:
    (tmp_path / shutdown_manager.NAME).write_text(text)
    assert shutdown_manager.read_times(tmp_path) == times


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"startTime":1}', '{"startTime":"soon"}', '{"endTime":"2023-11-14"}']
)
def test_a_malformed_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / shutdown_manager.NAME).write_text(text)
    with pytest.raises(ValueError):
        shutdown_manager.read_times(tmp_path)
