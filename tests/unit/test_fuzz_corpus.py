"""Every input kept by fuzzing, run without a fuzzer."""

from __future__ import annotations

import pytest

import tests.fuzz.subjects  # noqa: F401 - fills TARGETS
from tests.fuzz import target as fuzz
from tests.fuzz.corpus import FOLDER, kept
from tests.fuzz.target import TARGETS, Target, TooSlow


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_find_nothing(name: str) -> None:
    target = TARGETS[name]
    for data in kept(target):
        target(data)


def test_every_file_of_the_corpus_has_a_target() -> None:
    assert {path.name for path in FOLDER.iterdir()} <= set(TARGETS)


def test_unexpected_errors_and_slow_runs_are_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(data: bytes) -> None:
        sum(range(len(data) * 100_000))
        raise {b"k": KeyError, b"v": ValueError}.get(data[:1], OSError)

    target = Target("x", run, (ValueError, OSError), (), ())
    target(b"v")
    with pytest.raises(KeyError):
        target(b"k")
    monkeypatch.setattr(fuzz, "BASE_S", 0.0)
    with pytest.raises(TooSlow, match="20 bytes took"):
        target(b"o" * 20)
