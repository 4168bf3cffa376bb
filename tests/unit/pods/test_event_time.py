"""The age of an event is used only if it is plausible."""

from __future__ import annotations

import pytest

from kubeletpy.pods.runtime_status import event_observed_at

S = 10**9
WALL, STEADY = 1_700_000_000 * S, 500 * S


@pytest.mark.parametrize(
    ("created_at", "observed_at"),
    [
        (WALL, STEADY),
        (WALL - 3 * S, STEADY - 3 * S),
        (WALL + S, STEADY),  # two clocks of one machine are read one after the other
        (WALL + S + 1, None),  # the wall clock was set back after the event
        (WALL + 300 * S, None),
        (WALL - 300 * S, STEADY - 300 * S),  # it was set forward, or the event waited
        (WALL - 7 * 86_400 * S + 1, STEADY - 7 * 86_400 * S + 1),
        (WALL - 7 * 86_400 * S, None),
        (0, None),
        (-(2**62), None),
        (2**62, None),
    ],
)
def test_event_time(created_at: int, observed_at: int | None) -> None:
    assert event_observed_at(created_at, WALL, STEADY) == observed_at
