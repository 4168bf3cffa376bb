"""How runs ended, why, and which containers are restless."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.observe.explain.containers import (
    RECENTLY_S,
    killed_by,
    last_exit,
    never_ran,
    restless,
)
from kubeletpy.pods.runtime_status import Decision, KillReason, ProbeOutcome
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from tests.unit.observe.explain.facts import NOW, exited, facts, not_ready, running, waiting
from tests.unit.podworkers.builders import make_pod

BAD, GOOD = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS
DEAD, UNSTARTED = KillReason.LIVENESS_PROBE, KillReason.STARTUP_PROBE
LIVENESS, READINESS, STARTUP = ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP
TWO = make_pod(containers=[{"name": "side", "image": "i"}, {"name": "main", "image": "i"}])
WAITS = {"status": {"containerStatuses": [running("side"), waiting("CrashLoopBackOff")]}}


@pytest.mark.parametrize(
    ("reason", "message", "never"),
    [
        ("StartError", "no such file", True),
        ("ContainerCannotRun", "no such file", True),
        ("StartError", "", False),
        ("Error", "no such file", False),
    ],
)
def test_a_program_that_never_ran(reason: str, message: str, never: bool) -> None:
    state = exited(1)["state"]["terminated"] | {"reason": reason, "message": message}
    found = last_exit(
        facts(status=not_ready({"name": "main", "state": {"terminated": state}})), "main"
    )
    assert found is not None
    assert never_ran(found) is never


def kill(at: float, why: KillReason, name: str = "main", last: float = 0.0) -> HistoryEntry:
    made = Decision("what", "why", killed=name, kill_reason=why)
    return HistoryEntry(NOW - at, made, last_at=last and NOW - last)


def report(kind: ProbeKind, settled: ProbeOutcome | None, name: str = "main") -> dict[str, Any]:
    return {"probe_reports": (ProbeReport(name, kind, settled, ProbeFinding(BAD, "no")),)}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        (report(LIVENESS, BAD), LIVENESS),
        (report(STARTUP, BAD), STARTUP),
        (report(READINESS, BAD), None),
        (report(LIVENESS, GOOD), None),
        (report(LIVENESS, None), None),
        (report(LIVENESS, BAD, "side"), None),
        ({"history": (kill(5, DEAD),)}, LIVENESS),
        ({"history": (kill(5, UNSTARTED),)}, STARTUP),
        ({"history": (kill(9, DEAD), kill(5, KillReason.DEFINITION_CHANGED))}, None),
        ({"history": (HistoryEntry(NOW - 1, Decision("start container main", "probe")),)}, None),
        ({"history": (kill(5, DEAD, "side"),)}, None),
        ({"history": (kill(5, UNSTARTED), kill(9, DEAD))}, STARTUP),
        ({"history": (kill(9, UNSTARTED), kill(5, DEAD))}, LIVENESS),
        ({"history": (kill(9, UNSTARTED, last=2), kill(5, DEAD))}, STARTUP),
        ({"history": (kill(5, UNSTARTED), kill(9, DEAD, last=2))}, LIVENESS),
        ({"history": (kill(RECENTLY_S, DEAD),)}, LIVENESS),
        ({"history": (kill(RECENTLY_S + 1, DEAD),)}, None),
        ({"history": (kill(RECENTLY_S + 1, DEAD, last=RECENTLY_S),)}, LIVENESS),
        ({"history": (kill(5, DEAD),), **WAITS}, None),
    ],
)
def test_the_probe_that_ended_a_run(changes: dict[str, Any], kind: ProbeKind | None) -> None:
    both = {"status": {"containerStatuses": [running("side"), running()]}}
    assert killed_by(facts(TWO, **{**both, **changes}), "main") is kind


def test_a_container_absent_from_the_pod_has_no_killer() -> None:
    assert killed_by(facts(TWO, history=(kill(5, DEAD, "x"),)), "x") is None


def entry(restarts: int, since: float | None, ended: float | None, **more: Any) -> dict[str, Any]:
    state = {"running": {} if since is None else {"startedAt": format_time(NOW - since)}}
    last = {} if ended is None else {"terminated": {"finishedAt": format_time(NOW - ended)}}
    return {"name": "main", "state": state, "lastState": last, "restartCount": restarts, **more}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (entry(2, 5, 6), True),
        (entry(1, 5, 6), False),
        (entry(2, None, 6), False),
        (entry(2, 5, None), False),
        (entry(2, 5, RECENTLY_S - 1), True),
        (entry(2, 5, RECENTLY_S), False),
        (entry(2, RECENTLY_S, 6), False),
        (entry(2, 5, 6, state={"waiting": {"reason": "CrashLoopBackOff"}}), False),
        (entry(2, 5, 6, state={"terminated": {"finishedAt": format_time(NOW - 5)}}), False),
    ],
)
def test_a_restless_container(status: dict[str, Any], found: bool) -> None:
    """A restless container restarted at least twice, and its last two runs were short."""
    calm = running("side", restartCount=5)
    view = restless(facts(TWO, status={"containerStatuses": [calm, status]}))
    assert (view is not None and view.name) == (found and "main")
