"""Which pods start without an API server: tolerations, clocks and modes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubeletpy.base.api.times import Moment, format_time
from kubeletpy.config.flags import OfflineStart
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.offline import (
    TAINTS,
    Absence,
    OfflineRule,
    absence,
    decide,
    toleration_s,
)

UNREACHABLE, NOT_READY = TAINTS
CONTACT = 1_700_000_000.0
R = OfflineRule


def pod(*tolerations: dict[str, Any], **metadata: Any) -> Pod:
    obj: Any = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": list(tolerations)},
    }
    return Pod(obj)


def toleration(key: str = "", seconds: int | None = 300, **more: Any) -> dict[str, Any]:
    found = {"operator": "Exists", "effect": "NoExecute", **({"key": key} if key else {}), **more}
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


BOTH = (toleration(UNREACHABLE), toleration(NOT_READY))
FOREVER = (toleration(UNREACHABLE, None), toleration(NOT_READY, None))


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 0.0),
        (BOTH, 300.0),
        (FOREVER, math.inf),
        ((toleration("", None),), math.inf),
        ((toleration("", None, effect=""),), math.inf),
        ((toleration(UNREACHABLE, 60), toleration("", 30)), 30.0),
        ((toleration(UNREACHABLE, None), toleration("", 30)), 30.0),
        ((toleration(UNREACHABLE, -5),), 0.0),
        ((toleration(UNREACHABLE, None, effect="NoSchedule"),), 0.0),
        ((toleration("other", None),), 0.0),
        ((toleration(UNREACHABLE, 60, operator="Equal", value="x"),), 0.0),
        ((toleration(UNREACHABLE, 60, operator=""),), 60.0),
    ],
)
def test_toleration_seconds(tolerations: Any, seconds: float) -> None:
    assert toleration_s(pod(*tolerations), UNREACHABLE) == seconds


def away(seconds: float | None, *, behind: bool = False) -> Absence:
    return Absence(CONTACT, seconds, behind)


U, A = OfflineStart.UNTIL_REPLACED, OfflineStart.ALWAYS


@pytest.mark.parametrize(
    ("mode", "tolerations", "gone", "starts", "rule"),
    [
        (U, BOTH, away(299.9), True, R.WITHIN),
        (U, BOTH, away(300.0), False, R.REPLACEABLE),
        (U, BOTH, away(None), False, R.CLOCK_UNKNOWN),
        (U, BOTH, away(None, behind=True), False, R.CLOCK_BEHIND),
        (U, BOTH, Absence(), False, R.NO_RECORD),
        (U, (), away(0.0), False, R.REPLACEABLE),
        (U, (toleration(UNREACHABLE, None), toleration(NOT_READY, 10)), away(11), False,
         R.REPLACEABLE),
        (U, FOREVER, away(1e7), True, R.TOLERATED),
        (U, FOREVER, away(None), True, R.TOLERATED),
        (U, FOREVER, Absence(), True, R.TOLERATED),
        (A, (), away(None, behind=True), True, R.ALWAYS),
        (A, BOTH, Absence(), True, R.ALWAYS),
    ],
)  # fmt: skip
def test_decision(
    mode: OfflineStart, tolerations: Any, gone: Absence, starts: bool, rule: OfflineRule
) -> None:
    verdict = decide(pod(*tolerations), mode, gone)
    assert (verdict.starts, verdict.rule, verdict.since) == (starts, rule, gone.since)


def test_limit_is_the_last_contact_and_the_toleration() -> None:
    assert decide(pod(*BOTH), U, away(1)).until == CONTACT + 300
    assert decide(pod(*FOREVER), U, away(1)).until is None


@pytest.mark.parametrize(
    ("taint", "starts"),
    [
        ({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": CONTACT - 200}, False),
        ({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": CONTACT - 100}, True),
        ({"key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": CONTACT - 200}, True),
        ({"key": "example.com/x", "effect": "NoExecute", "timeAdded": CONTACT - 200}, True),
    ],
)
def test_time_counts_from_a_taint_that_the_node_already_had(
    taint: dict[str, Any], starts: bool
) -> None:
    taint["timeAdded"] = format_time(taint["timeAdded"])
    assert decide(pod(*BOTH), U, away(150), taints=[taint]).starts is starts


def test_taint_without_a_readable_time_does_not_matter() -> None:
    taint = {"key": UNREACHABLE, "effect": "NoExecute"}
    assert decide(pod(*BOTH), U, away(1), taints=[taint, {**taint, "timeAdded": "x"}]).starts


def test_running_and_deleted_pods_are_taken_up() -> None:
    assert decide(pod(), U, away(None), runs=True).rule is R.RUNNING
    deleted = pod(deletionTimestamp="2026-01-01T00:00:00Z")
    assert decide(deleted, U, away(None)).rule is R.ENDING


LAST = Moment(CONTACT, "boot-1", 1000.0)


@pytest.mark.parametrize(
    ("clock", "seconds", "behind"),
    [
        # the same boot: the wall clock does not matter
        (Moment(0.0, "boot-1", 1100.0), 100.0, False),
        (Moment(CONTACT + 9e6, "boot-1", 1100.0, trusted=False), 100.0, False),
        (Moment(CONTACT + 60, "boot-2", 20.0), 60.0, False),
        (Moment(CONTACT + 60, "boot-2", 20.0, trusted=False), None, False),
        (Moment(20.0, "boot-2", 20.0), None, True),
        (Moment(CONTACT - 1, "boot-2", 20.0), None, True),
        # an id that two boots share: that of a machine without one
        (Moment(CONTACT + 60, "boot-1", 20.0), 60.0, False),
    ],
)
def test_absence(clock: Moment, seconds: float | None, behind: bool) -> None:
    assert absence(LAST, clock) == Absence(CONTACT, seconds, behind)


def test_absence_without_a_record() -> None:
    assert absence(None, Moment(CONTACT, "b", 1.0)) == Absence()
