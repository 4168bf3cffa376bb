"""The record of a shutdown, as a kubelet and as this agent write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletpy.node.shutdown.record import (
    MOST_PODS,
    NAME,
    ShutdownRecord,
    read_record,
    write_record,
)

WHEN = 1_700_000_000.25


@pytest.mark.parametrize(
    "record",
    [
        ShutdownRecord(WHEN),
        ShutdownRecord(WHEN, WHEN + 9),
        ShutdownRecord(WHEN, WHEN + 9, {"uid-1": WHEN + 1, "uid-2": WHEN + 2}),
    ],
)
def test_a_record_survives_a_round_trip(tmp_path: Path, record: ShutdownRecord) -> None:
    write_record(tmp_path, ShutdownRecord(1.0, 2.0, {"old": 1.5}))
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record


def test_no_file_means_no_shutdown(tmp_path: Path) -> None:
    assert read_record(tmp_path) == ShutdownRecord()


def test_the_oldest_pods_are_dropped(tmp_path: Path) -> None:
    ended = {f"uid-{number}": WHEN + number for number in range(MOST_PODS + 2)}
    write_record(tmp_path, ShutdownRecord(WHEN, ended=ended))
    assert list(read_record(tmp_path).ended) == list(ended)[2:]


@pytest.mark.parametrize(
    ("text", "record"),
    [
        # as the kubelet writes them
        (
            '{"startTime":"2023-11-14T22:13:20.250000000Z","endTime":"2023-11-14T23:13:20.25+01:00"}',
            ShutdownRecord(WHEN, WHEN),
        ),
        ('{"startTime":"2023-11-14T22:13:20.25Z","endTime":null}', ShutdownRecord(WHEN)),
        ('{"startTime":"0001-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}', ShutdownRecord()),
        ("{}", ShutdownRecord()),
    ],
)
def test_a_kubelet_wrote_it(tmp_path: Path, text: str, record: ShutdownRecord) -> None:
    (tmp_path / NAME).write_text(text)
    assert read_record(tmp_path) == record


def test_a_kubelet_finds_its_own_keys(tmp_path: Path) -> None:
    write_record(tmp_path, ShutdownRecord(WHEN, WHEN, {"uid-1": WHEN}))
    stored = json.loads((tmp_path / NAME).read_text())
    assert stored["startTime"] == stored["endTime"] == stored["pods"]["uid-1"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"startTime":1}',
        '{"startTime":"soon"}',
        '{"endTime":"2023-11-14"}',
        '{"pods":[]}',
        '{"pods":{"uid-1":1}}',
    ],
)
def test_a_malformed_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ValueError):
        read_record(tmp_path)
