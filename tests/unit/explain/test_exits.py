"""How containers ended: the order, the times and what the runtime or the status remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeletpy.explain.containers import MAX_EXITS, exits
from kubeletpy.explain.model import ContainerView, Role, State
from kubeletpy.explain.waits import not_ready, waits
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.trace.names import Call
from tests.unit.explain.facts import NOW, doing, exited, facts

S = 10**9


def ended(name: str, at: int, state: ContainerState = ContainerState.EXITED) -> ContainerStatus:
    return ContainerStatus(
        f"id-{at}", name, state, started_at=1, finished_at=at, exit_code=3, restart_count=at
    )


def remembered(*records: ContainerStatus) -> PodRuntimeStatus:
    return PodRuntimeStatus("uid", "web", "default", containers=records)


def test_the_newest_exit_comes_first_and_what_runs_has_none() -> None:
    runs = ended("main", 9 * S, ContainerState.RUNNING)
    found = exits(facts(runtime=remembered(ended("main", 2 * S), runs, ended("side", 5 * S))))
    assert [(one.container, one.finished_at) for one in found] == [("side", 5.0), ("main", 2.0)]


def test_there_are_not_too_many() -> None:
    records = [ended("main", n * S) for n in range(1, MAX_EXITS + 3)]
    found = exits(facts(runtime=remembered(*records)))
    assert [one.finished_at for one in found] == list(range(MAX_EXITS + 2, 2, -1))


@pytest.mark.parametrize(("nanoseconds", "seconds"), [(0, None), (1, 1e-9), (S, 1.0)])
def test_zero_is_no_time(nanoseconds: int, seconds: float | None) -> None:
    record = replace(ended("main", S), started_at=nanoseconds, finished_at=nanoseconds)
    (one,) = exits(facts(runtime=remembered(record)))
    assert (one.started_at, one.finished_at) == (seconds, seconds)


def test_the_status_adds_what_the_runtime_has_forgotten() -> None:
    status = exited(7, containerID="containerd://id-1")
    status["state"]["terminated"]["containerID"] = "containerd://id-1"
    more: dict[str, Any] = {"status": {"containerStatuses": [status]}}
    assert [one.exit_code for one in exits(facts(**more))] == [7]
    assert [
        one.exit_code for one in exits(facts(**more, runtime=remembered(ended("main", 1))))
    ] == [3]
    assert [
        one.exit_code for one in exits(facts(**more, runtime=remembered(ended("main", 2))))
    ] == [7, 3]


@pytest.mark.parametrize(("since", "named"), [(1.0, False), (1.5, True)])
def test_a_call_is_waited_for_when_it_takes_longer_than_a_second(since: float, named: bool) -> None:
    found = waits(facts(trace=doing(Call.STOP_POD_SANDBOX, "ab", since), now=NOW))
    assert ([wait.kind for wait in found] == ["runtime call"]) is named


@pytest.mark.parametrize(
    ("kind", "state", "ready", "named"),
    [
        ("container", "running", False, True),
        ("sidecar", "running", False, True),
        ("container", "running", True, False),
        ("container", "waiting", False, False),
        ("init", "running", False, False),
        ("ephemeral", "running", False, False),
    ],
)
def test_who_is_not_ready(kind: str, state: str, ready: bool, named: bool) -> None:
    view = ContainerView("a", Role(kind), "i", State(state), "", "", None, ready, 0, "id")
    assert not_ready((view,)) == (("a",) if named else ())
