"""End-to-end tests that a focus and a skip select."""

from __future__ import annotations

import pytest

from tools.conformance.suite import SKIP, Choice

BACK_OFF = "[sig-node] Pods should cap back-off at MaxContainerBackOff [NodeConformance] [Slow]"


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (Choice(), True),
        (Choice(skip=f"{SKIP}|should cap back-off"), False),
        (Choice(focus="Pod InPlace Resize"), False),
    ],
)
def test_a_test_is_run_when_its_name_has_the_focus_and_not_the_skip(
    choice: Choice, taken: bool
) -> None:
    assert choice.takes(BACK_OFF) is taken
