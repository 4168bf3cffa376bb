"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "probes/commands SLACK_S": 2.0,
    "probes/commands RUNTIME_S": 2.0,
    "probes/commands SLOW_S": 0.1,
    "probes/commands _Call.runtime_was_silent": False,
    "probes/report KEPT_WORDS": 200,
    "probes/schedule EARLY_PAUSE_S": 0.1,
    "probes/schedule RESTART_SLACK_S": 10.0,
    "probes/schedule MAX_SECONDS": 1_000_000_000,
    "probes/report ProbeReport.at": 0.0,
    "probes/report ProbeReport.streak": 0,
    "probes/report ProbeReport.threshold": 1,
    "probes/schedule ProbeSpec.period": 10,
    "probes/schedule ProbeSpec.timeout": 1,
    "probes/schedule ProbeSpec.initial_delay": 0,
    "probes/schedule ProbeSpec.failure_threshold": 3,
    "probes/schedule ProbeSpec.success_threshold": 1,
    "probes/schedule ProbedContainer.survivor": False,
    "probes/schedule ProbedContainer.started": False,
    "probes/schedule ProbedContainer.may_run_again": True,
    "probes/schedule ProbedContainer.deleting": False,
    "probes/schedule ProbeState.streak": 0,
    "probes/schedule ProbeState.on_hold": False,
    "probes/schedule ProbeState.ended": False,
    "probes/schedule ProbeState.survivor": False,
    "probes/schedule ProbeState.counts_from": 0.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
