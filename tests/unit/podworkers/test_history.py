"""The history of a worker's decisions, and the reason why it ends a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.history import DecisionHistory, why_terminating
from kubeletpy.podworkers.records import UpdateType, Work, WorkerRecord
from tests.unit.podworkers.builders import make_pod

DECISIONS = [Decision(str(number), "why") for number in range(600)]


@pytest.mark.parametrize(
    ("before", "repeated", "counted"),
    [(1, 0, True), (6, 0, True), (6, 5, True), (7, 0, False), (7, 1, True), (9, 2, False)],
)
def test_repeats_among_the_last_six_are_counted(before: int, repeated: int, counted: bool) -> None:
    history = DecisionHistory()
    history.add("u", DECISIONS[:before], 1.0)
    history.add("u", [DECISIONS[repeated]], 2.0)
    history.add("u", [DECISIONS[repeated]], 3.0)
    entries = history.decisions("u")
    assert len(entries) == (before if counted else before + 1)
    entry = entries[repeated if counted else -1]
    assert entry.decision == DECISIONS[repeated]
    assert (entry.at, entry.last_at) == ((1.0, 3.0) if counted else (2.0, 3.0))
    assert entry.count == (3 if counted else 2)


def test_how_much_is_kept() -> None:
    history = DecisionHistory()
    history.add("0", DECISIONS, 1.0)
    assert [entry.decision for entry in history.decisions("0")] == DECISIONS[-50:]
    for uid in range(500):
        history.add(str(uid), DECISIONS[:1], 2.0)
    assert history.decisions("0")
    history.add("500", DECISIONS[:1], 3.0)
    assert [uid for uid in range(501) if not history.decisions(str(uid))] == [0]


def test_add_once_does_not_count_repetitions() -> None:
    history = DecisionHistory()
    history.add("u", DECISIONS[:20], 1.0)
    history.add_once("u", DECISIONS[0], 2.0)
    assert [entry.count for entry in history.decisions("u")] == [1] * 20
    history.add_once("u", DECISIONS[20], 2.0)
    assert len(history.decisions("u")) == 21
    assert history.decisions("v") == ()


def record(pod: Pod | None, **more: Any) -> WorkerRecord:
    work = None if pod is None else Work(UpdateType.SYNC, pod=pod)
    return WorkerRecord("u", "p_d", active=work, **more)


GOING = make_pod(deleting=5)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (record(None, evicted=True, deleted=True), "no source has this pod any more"),
        (record(GOING, evicted=True, deleted=True), "it was evicted"),
        (record(GOING, deleted=True), "it was deleted in the API"),
        (record(make_pod(), deleted=True), "it is in no source of pods any more"),
        (record(make_pod(phase="Failed"), deleted=True), "it is in no source of pods any more"),
        (record(make_pod(phase="Failed")), "the API shows that it has ended"),
        (record(make_pod()), "it has run to its end"),
    ],
)
def test_why_a_pod_ends(of: WorkerRecord, why: str) -> None:
    found = why_terminating(of, 7)
    assert found == Decision("terminate the pod within 7 s", found.why, ends_pod=True)
    assert found.why.startswith(why)
