"""Durations and texts as people read them."""

from __future__ import annotations

import pytest

from kubeletpy.images.policy import PullProgress
from kubeletpy.observe.explain import phrases
from kubeletpy.observe.explain.phrases import pull_progress
from kubeletpy.observe.explain.texts import ago, duration, milliseconds, one_line, restarts, until


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.04, "0s"),
        (0.44, "0.4s"),
        (1, "1s"),
        (9.94, "9.9s"),
        (9.95, "10s"),
        (10.4, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (60, "1m"),
        (61, "1m1s"),
        (192, "3m12s"),
        (3599, "59m59s"),
        (3600, "1h"),
        (3660, "1h1m"),
        (3630, "1h"),
        (47 * 3600 + 59 * 60, "47h59m"),
        (48 * 3600, "2d"),
        (71 * 3600, "2d"),
        (72 * 3600, "3d"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("at", "past", "future"),
    [
        (0.0, "now", "now"),
        (0.04, "now", "now"),
        (0.05, "0.1s ago", "in 0.1s"),
        (1.2, "1.2s ago", "in 1.2s"),
        (-7.0, "now", "now"),
    ],
)
def test_ago_and_until(at: float, past: str, future: str) -> None:
    assert ago(0.0, at) == past
    assert until(at, 0.0) == future


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 ms"),
        (0.0006, "0.6 ms"),
        (0.00994, "9.9 ms"),
        (0.009949999999999999, "10 ms"),
        (0.00995, "10 ms"),
        (0.34, "340 ms"),
        (1.0, "1000 ms"),
        (9.999, "9999 ms"),
        (10, "10.0 s"),
        (12.34, "12.3 s"),
    ],
)
def test_milliseconds(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("a\n\tb\x1b[0m", 400, "a b [0m"),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("x" * 400, 400, "x" * 400),
    ],
)
def test_one_line(text: str, limit: int, line: str) -> None:
    assert one_line(text, limit) == line


def test_one_line_is_cut_at_400() -> None:
    assert len(one_line("x" * 500)) == 400
    assert one_line("x" * 400) == "x" * 400


@pytest.mark.parametrize(("fails", "text"), [(True, "failing"), (False, "in progress")])
def test_resizing(fails: bool, text: str) -> None:
    assert phrases.resizing(fails=fails) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 restarts"), (1, "1 restart"), (2, "2 restarts")]
)
def test_restarts(count: int, text: str) -> None:
    assert restarts(count) == text


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (PullProgress(0, 0, 0, 0), "0 B have arrived and are being unpacked"),
        (PullProgress(0, 100 << 20, 3, 0), "0 MiB of 100.0 MiB (0 %)"),
        (
            PullProgress(34 << 20, 120 << 20, 7, 2, 0, 4.1 * (1 << 20), 21.2),
            "34.0 MiB of 120.0 MiB (28 %), 4.1 MiB/s, 21s left",
        ),
        (
            PullProgress(34 << 20, 120 << 20, 7, 2, 40, 0.0, None, 3, 40),
            "34.0 MiB of 120.0 MiB (28 %); layer 3 of 7 has been stuck for 40s",
        ),
        (
            PullProgress(120 << 20, 120 << 20, 7, 7, 2, None, 3.0),
            "120.0 MiB have arrived and are being unpacked, 3s left",
        ),
    ],
)
def test_the_progress_of_a_pull(progress: PullProgress, expected: str) -> None:
    assert pull_progress(progress) == expected
