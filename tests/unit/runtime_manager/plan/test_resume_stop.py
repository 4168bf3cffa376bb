"""How a stop that an earlier agent began is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.runtime_manager.plan.grace import (
    WITHDRAWN_S,
    HookState,
    ResumedStop,
    StopRecord,
    resume_stop,
)

EXEC: Any = {"exec": {"command": ["drain"]}}
SLEEP: Any = {"sleep": {"seconds": 20}}
NONE, BEGUN, ENDED = HookState


def begun(hook: HookState = NONE, *, deleting: bool = True, at: float = 100.0) -> StopRecord:
    return StopRecord("c", "life", at, deleting, hook)


@pytest.mark.parametrize(
    ("record", "pre_stop", "now", "left"),
    [
        (None, EXEC, 112, ResumedStop(anew=True, hook=EXEC)),
        (None, None, 112, ResumedStop(anew=True)),
        (begun(), EXEC, 112, ResumedStop(elapsed=12, hook=EXEC)),
        (begun(BEGUN), EXEC, 112, ResumedStop(elapsed=12)),
        (begun(ENDED), EXEC, 112, ResumedStop(elapsed=12)),
        (begun(), None, 112, ResumedStop(elapsed=12)),
        # a sleep hook has no effect except its end
        (begun(BEGUN), SLEEP, 112, ResumedStop(elapsed=12, hook={"sleep": {"seconds": 8}})),
        (begun(BEGUN), SLEEP, 119.9, ResumedStop(elapsed=19.9, hook={"sleep": {"seconds": 1}})),
        (begun(BEGUN), SLEEP, 120, ResumedStop(elapsed=20)),
        (begun(ENDED), SLEEP, 112, ResumedStop(elapsed=12)),
        (begun(BEGUN), {"sleep": {"seconds": "no number"}}, 112, ResumedStop(elapsed=12)),
        # the clock was set back
        (begun(BEGUN), EXEC, 50, ResumedStop()),
        # a deletion is resumed, however long no agent ran
        (begun(BEGUN), EXEC, 5000, ResumedStop(elapsed=4900)),
    ],
)
def test_the_rest_of_an_interrupted_stop(
    record: StopRecord | None, pre_stop: Any, now: float, left: ResumedStop
) -> None:
    found = resume_stop(record, grace=30, deleting=True, pre_stop=pre_stop, now=now)
    assert (found.anew, found.hook) == (left.anew, left.hook)
    assert found.elapsed == pytest.approx(left.elapsed)


@pytest.mark.parametrize(
    ("was", "is_now", "after", "anew"),
    [
        (False, False, 30 + WITHDRAWN_S, False),
        (False, False, 31 + WITHDRAWN_S, True),
        (True, False, 31 + WITHDRAWN_S, True),
        (False, True, 31 + WITHDRAWN_S, True),
        (True, True, 31 + WITHDRAWN_S, False),
    ],
)
def test_a_stop_without_deletion_begins_anew_after_a_while(
    was: bool, is_now: bool, after: float, anew: bool
) -> None:
    record = begun(BEGUN, deleting=was)
    left = resume_stop(record, grace=30, deleting=is_now, pre_stop=EXEC, now=100 + after)
    assert left.anew is anew
    assert left.hook == (EXEC if anew else None)
