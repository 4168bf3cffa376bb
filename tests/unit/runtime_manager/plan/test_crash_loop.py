"""CrashLoopBackOff (docs/reference/behaviour.md, d)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import ContainerStatus
from kubeletpy.runtime_manager.plan.crash_loop import MAX_ENDS, CrashLoopBackoff, crash_loop_key
from tests.unit.runtime_manager.pods_and_records import container, exited, has, make_pod, running

POD = make_pod("app")
APP = POD.containers[0]


def ended_at(seconds: float) -> Any:
    """Each end is that of another record."""
    return has(exited("app", 1, finished_at=int(seconds * 1e9), suffix=f"-{seconds:g}"))


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


def waits(
    backoff: CrashLoopBackoff, run: int, finished_at: float, now: float, offset: float = 0.0
) -> float | None:
    """Seconds from now until a container may start after the end of a run; None: it starts.

    ``finished_at`` and the answer are of the wall clock, ``now`` of the one that never steps.
    """
    record = exited("app", 1, suffix=str(run), finished_at=int(finished_at * 1e9))
    started = int((finished_at - 1) * 1e9)
    held = backoff.admit(
        POD, APP, has(replace(record, restart_count=run, created_at=started)), now, offset
    )
    return None if held is None else round(held.due_at - offset - now, 3)


def test_ten_minutes_of_running_start_afresh_whatever_the_maximum() -> None:
    backoff = CrashLoopBackoff(maximum=20)
    for run, now in enumerate((100, 101 + 10, 112 + 20)):
        assert waits(backoff, run, now, now) is None or run
        waits(backoff, run, now, now + 20)
    assert waits(backoff, 3, 153, 153) == 20
    assert waits(backoff, 4, 753, 753) is None
    assert waits(backoff, 5, 754, 754) == 10


def test_a_short_maximum_lowers_the_base() -> None:
    backoff = CrashLoopBackoff(maximum=1)
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 101, 101) == 1


@pytest.mark.parametrize("step", [-86_400.0, -300.0, -5.0, -0.3, 0.3, 5.0, 300.0, 86_400.0])
def test_a_step_of_the_wall_clock_does_not_change_a_delay(step: float) -> None:
    began = 1_700_000_000.0
    backoff = CrashLoopBackoff(began=began)
    assert waits(backoff, 0, began + 1, began + 1) is None
    assert waits(backoff, 1, began + 2, began + 3) == 9
    # the clock is set after the end was seen
    assert waits(backoff, 1, began + 2, began + 4, step) == 8
    assert waits(backoff, 1, began + 2, began + 11.9, step) == 0.1
    backoff.collect(began + 11.9)
    assert waits(backoff, 1, began + 2, began + 12, step) is None
    # it stays set: the next end is converted by the new offset
    assert waits(backoff, 2, began + 13 + step, began + 15, step) == 18


@pytest.mark.parametrize("step", [-86_400.0, -300.0, -5.0, -0.3, 0.3, 5.0, 300.0, 86_400.0])
@pytest.mark.parametrize("by_new_clock", [True, False])
def test_an_end_near_a_step_counts_from_when_it_is_seen(step: float, by_new_clock: bool) -> None:
    began = 1_700_000_000.0
    backoff = CrashLoopBackoff(began=began)
    assert waits(backoff, 0, began + 1, began + 1) is None
    finished_at = began + 2 + (step if by_new_clock else 0.0)
    assert waits(backoff, 1, finished_at, began + 4, step) == 10
    assert waits(backoff, 1, finished_at, began + 14, step) is None


def test_a_slow_reading_of_the_clocks_is_no_step() -> None:
    backoff = CrashLoopBackoff(began=90)
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 101, 103, offset=0.04) == pytest.approx(7.96)


def test_an_end_is_after_its_start_and_not_in_the_future() -> None:
    backoff = CrashLoopBackoff()
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 1e6, 105) == 10, "the clock was set twice"
    assert waits(backoff, 1, 1e6, 110) == 5
    assert waits(backoff, 1, 1e6, 115) is None
    assert waits(backoff, 2, 50, 120) == 15, "it was started at 115"


def test_a_start_that_failed_leaves_the_end_where_it_was() -> None:
    backoff = CrashLoopBackoff()
    assert waits(backoff, 0, 100, 101) is None
    assert waits(backoff, 0, 100, 102) == 8


def test_the_ends_that_are_remembered_are_bounded() -> None:
    backoff = CrashLoopBackoff()
    for number in range(MAX_ENDS + 5):
        backoff.admit(make_pod("app", metadata={"uid": f"uid-{number}"}), APP, ended_at(1), 1)
    assert len(backoff._known) == MAX_ENDS
    backoff.collect(1000)
    assert not backoff._known


def test_the_end_of_another_container_does_not_count() -> None:
    backoff = CrashLoopBackoff()
    for _ in range(2):
        assert backoff.admit(POD, APP, has(exited("other", 1, finished_at=10**9)), 1) is None
    assert len(backoff) == 0


def test_the_newest_exited_record_counts() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(100), 100)
    status = has(
        exited("app", 1, suffix="-new", finished_at=int(200e9)),
        exited("app", 1, suffix="-100", finished_at=int(100e9)),
    )
    held = backoff.admit(POD, APP, status, 201)
    assert held is not None
    assert held.due_at == 210


def test_collect() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(0), 0)
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
        # it waited for at least 20 s, where the count alone would allow 160
        ([past(5, 90, 95), past(4, 60, 69)], 40),
        ([past(5, 90, 95), past(4, 60, 70)], 40),
        ([past(5, 90, 95), past(4, 60, 70.1)], 20),
        ([past(5, 90, 95), past(4, 60, 80)], 20),
        ([past(5, 90, 95), past(4, 60, 80.1)], 10),
        ([past(5, 90, 95), past(4, 60, 90)], 10),
        ([past(5, 90, 95), past(4, 60, 91)], 160),  # the clock was set back
        ([past(2, 90, 95), past(1, 0, 1)], 20),  # no agent ran for a while
    ],
)
def test_an_agent_resumes_the_delays_of_the_previous_one(
    records: list[ContainerStatus], delay: float | None
) -> None:
    backoff = CrashLoopBackoff(began=97)
    held = backoff.admit(POD, APP, has(*records), 97)
    assert held is None if delay is None else held is not None and held.due_at == 95 + delay


@pytest.mark.parametrize("finished", [95, 110, -86_305, 86_495])
@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_step_never_lengthens_a_resumed_delay_beyond_one_delay(
    finished: float, step: float
) -> None:
    """The wall clock was set while no agent ran, or after the new one began."""
    for offset in (0.0, step):
        backoff = CrashLoopBackoff(began=100)
        status = has(past(2, finished - 1, finished))
        held = backoff.admit(POD, APP, status, 120, offset)
        assert held is None or held.due_at - offset <= 120 + 20
        assert backoff.admit(POD, APP, status, 140, offset) is None


def test_a_step_after_the_agent_began_never_shortens_a_resumed_delay() -> None:
    backoff = CrashLoopBackoff(began=100)
    held = backoff.admit(POD, APP, has(past(2, 90, 95)), 101, 86_400)
    assert held is not None
    assert held.due_at == 101 + 20 + 86_400


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
