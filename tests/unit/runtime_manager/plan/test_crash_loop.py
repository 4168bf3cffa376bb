"""CrashLoopBackOff (docs/reference/behaviour.md, d)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerStatus
from kubeletpy.runtime_manager.plan.crash_loop import (
    MAX_AHEAD,
    CrashLoopBackoff,
    crash_loop_key,
)
from kubeletpy.structs import replace
from tests.unit.runtime_manager.pods_and_records import container, exited, has, make_pod, running

POD = make_pod("app")
APP = POD.containers[0]


def ended_at(seconds: float) -> Any:
    return has(exited("app", 1, finished_at=int(seconds * 1e9)))


def test_delays_between_crashes() -> None:
    backoff = CrashLoopBackoff()
    now = 1000.0
    delays = []
    for _ in range(8):
        crashed = ended_at(now)
        held = backoff.admit(POD, APP, crashed, now)
        if held is None:
            delays.append(0.0)
            continue
        delays.append(held.due_at - now)
        assert backoff.admit(POD, APP, crashed, held.due_at - 0.01) is not None
        now = held.due_at
        assert backoff.admit(POD, APP, crashed, now) is None
        now += 1  # it runs for a second
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_first_start_never_waits() -> None:
    backoff = CrashLoopBackoff()
    assert backoff.admit(POD, APP, has(), 0) is None
    assert backoff.admit(POD, APP, has(running("app")), 0) is None
    assert len(backoff) == 0


def test_messages() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(100), 100)
    held = backoff.admit(POD, APP, ended_at(101), 102)
    assert held is not None
    assert held.due_at == 111
    assert held.message == ("back-off 10s restarting failed container=app pod=web_prod(uid-1)")
    assert held.event == "Back-off restarting failed container app in pod web_prod(uid-1)"


def test_ten_minutes_of_running_start_afresh_whatever_the_maximum() -> None:
    backoff = CrashLoopBackoff(maximum=20)
    for now in (100, 101, 102):
        backoff.next("k", now, now)
    assert backoff.check("k", 110, 110) == 130
    assert backoff.check("k", 703, 703) is None
    assert backoff.next("k", 703, 703) == 10


def test_a_short_maximum_lowers_the_base() -> None:
    backoff = CrashLoopBackoff(maximum=1)
    assert backoff.next("k", 0, 0) == 1


def test_an_end_in_the_future_counts_from_when_it_is_seen() -> None:
    backoff = CrashLoopBackoff()
    backoff.next("k", 100, 100)
    assert backoff.check("k", 1e6, 105) == 115
    assert backoff.check("k", 1e6, 110) == 115
    backoff.collect(110)
    assert backoff.check("k", 1e6, 115) is None
    backoff.next("k", 1e6, 115)
    # another end that is given the same time, and one seen before the clock was set back again
    assert backoff.check("k", 1e6, 120) == 140
    assert backoff.check("k", 1e6, 50) == 70
    assert backoff.check("k", 60, 65) == 80
    for number in range(MAX_AHEAD + 5):
        backoff.check(f"k{number}", 1e6, 1)
    assert len(backoff._ahead) == MAX_AHEAD
    backoff.collect(2e6)
    assert not backoff._ahead


def test_what_is_known_of_an_end_in_the_future() -> None:
    backoff = CrashLoopBackoff()
    backoff.next("k", 100, 100)
    assert backoff.check("k", 100, 100) == 110
    assert not backoff._ahead, "it is not in the future"
    assert backoff.check("k", 1e6, 105) == 115
    backoff.collect(105)
    assert backoff.check("k", 1e6, 106) == 115
    assert backoff.check("k", 2e6, 107) == 117, "another end"
    backoff.collect(2e6)
    assert not backoff._ahead


def test_the_end_of_another_container_does_not_count() -> None:
    backoff = CrashLoopBackoff()
    for _ in range(2):
        assert backoff.admit(POD, APP, has(exited("other", 1, finished_at=10**9)), 1) is None
    assert len(backoff) == 0


def test_the_newest_exited_record_counts() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(100), 100)
    status = has(
        exited("app", 1, finished_at=int(200e9)),
        exited("app", 1, suffix="-old", finished_at=int(100e9)),
    )
    held = backoff.admit(POD, APP, status, 201)
    assert held is not None
    assert held.due_at == 210


def test_collect() -> None:
    backoff = CrashLoopBackoff()
    backoff.next("k", 0, 0)
    backoff.collect(600)
    assert len(backoff) == 1
    backoff.collect(601)
    assert len(backoff) == 0


def test_a_changed_image_or_resources_start_afresh() -> None:
    def key(spec: Any, **metadata: Any) -> str:
        return crash_loop_key(make_pod(spec, metadata=metadata), spec)

    both = {"cpu": "1", "memory": "1Gi"}
    backwards = dict(reversed(both.items()))
    assert key(container("app", resources={"limits": both})) == key(
        container("app", resources={"limits": backwards})
    )
    base = key(container("app"))
    assert base == key(container("app", env=[{"name": "X"}]))
    others = [
        key({**container("app"), "image": "other"}),
        key(container("app", resources={"limits": {"cpu": "1"}})),
        key(container("app2")),
        key(container("app"), uid="uid-2"),
        key(container("app"), namespace="test"),
    ]
    assert len({base, *others}) == 6
    assert int(base, 16) < 2**64


def past(count: int, created: float, finished: float, **more: Any) -> ContainerStatus:
    """A run that an earlier agent started."""
    ended = exited("app", 1, finished_at=int(finished * 1e9), suffix=str(count))
    return replace(ended, restart_count=count, created_at=int(created * 1e9), **more)


@pytest.mark.parametrize(
    ("records", "delay"),
    [
        ([past(0, 90, 95)], None),  # its first restart waits for nothing
        ([past(1, 90, 95)], 10),
        ([past(2, 90, 95)], 20),
        ([past(5, 90, 95)], 160),
        ([past(6, 90, 95)], 300),
        ([past(2**31 - 1, 90, 95)], 300),
        # it waited for 20 s at least, where the count alone would allow 160
        ([past(5, 90, 95), past(4, 60, 69)], 40),
        ([past(5, 90, 95), past(4, 60, 70)], 40),
        ([past(5, 90, 95), past(4, 60, 70.1)], 20),
        ([past(5, 90, 95), past(4, 60, 80)], 20),
        ([past(5, 90, 95), past(4, 60, 80.1)], 10),
        ([past(5, 90, 95), past(4, 60, 90)], 10),
        ([past(5, 90, 95), past(4, 60, 91)], 160),  # the clock was put back
        ([past(2, 90, 95), past(1, 0, 1)], 20),  # the agent was away
    ],
)
def test_an_agent_goes_on_with_the_delays_of_the_one_before(
    records: list[ContainerStatus], delay: float | None
) -> None:
    backoff = CrashLoopBackoff(began=97)
    held = backoff.admit(POD, APP, has(*records), 97)
    assert held is None if delay is None else held is not None and held.due_at == 95 + delay


def test_a_delay_that_is_resumed_doubles() -> None:
    backoff = CrashLoopBackoff(began=100)
    assert backoff.admit(POD, APP, has(past(2, 90, 95)), 115) is None
    held = backoff.admit(POD, APP, has(past(3, 115, 116)), 117)
    assert held is not None
    assert held.due_at == 116 + 40


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (past(3, 90, 95, hash="other"), "another image"),
        (past(3, 101, 102), "started by this agent"),
        (past(3, 90, 691), "it ran for ten minutes"),
    ],
)
def test_some_records_show_no_delay(record: ContainerStatus, why: str) -> None:
    backoff = CrashLoopBackoff(began=100)
    assert backoff.admit(POD, APP, has(record), record.finished_at / 1e9) is None, why
