"""The catalogue of troubles: ``kubeletpy explain`` answers four questions about each."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import to_builtins

from kubeletpy.observe.explain import render
from tests.sim import (
    troubles_containers,
    troubles_devices,
    troubles_endings,
    troubles_spec,
    troubles_storage,
)
from tests.sim.troubles import EARLY_S, LATE_S, Trouble, answers, play_trouble, without_times

ALL: tuple[Trouble, ...] = (
    *troubles_storage.TROUBLES,
    *troubles_devices.TROUBLES,
    *troubles_containers.TROUBLES,
    *troubles_endings.TROUBLES,
    *troubles_spec.TROUBLES,
)
ANSWERS = answers()
FINAL = ("refused", "evicted", "deadline-exceeded", "failed")


@pytest.mark.parametrize("trouble", ALL, ids=[each.name for each in ALL])
def test_explain_answers_the_four_questions(trouble: Trouble, tmp_path: Path) -> None:
    expected, played = ANSWERS[trouble.name], play_trouble(trouble, tmp_path)
    found = played.found
    assert (found.cause, without_times(found.verdict)) == (expected.cause, expected.verdict)
    assert found.first_seen is not None
    assert -EARLY_S <= found.first_seen - played.began <= LATE_S
    wait = next((f"{each.kind} {each.subject}".rstrip() for each in found.waits), "")
    assert (wait, found.final) == (expected.waits, expected.cause in FINAL)
    assert without_times(found.hint) == expected.hint
    assert [part for part in trouble.drawn if part not in played.timeline] == []
    text = render.pod(to_builtins(found))
    assert "\n  Since      " in text
    assert f"\n  To do      {found.hint}\n" in text


def test_each_row_is_one_trouble() -> None:
    assert [each.name for each in ALL] == list(ANSWERS)
