"""Queries of the agent to its workers, for each state of a record; and use of static names."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.podworkers.state_machine import (
    NamesInUse,
    RequeueSettings,
    StaticNames,
    WorkerMachine,
    WorkerQueries,
)

GOING: dict[str, Any] = {"terminating_at": 0.0}
REMOVED = {**GOING, "terminated_at": 0.0}
QUESTIONS = (
    "could_have_running_containers",
    "is_termination_requested",
    "is_known_terminated",
    "should_content_be_removed",
    "should_be_finished",
    "is_static_terminating",
)


@pytest.mark.parametrize(
    ("known", "yes"),
    [
        ({}, "could_have_running_containers"),
        (
            GOING,
            "could_have_running_containers is_termination_requested is_static_terminating",
        ),
        (
            {**GOING, "deleted": True, "evicted": True},
            "could_have_running_containers is_termination_requested is_static_terminating",
        ),
        (REMOVED, "is_termination_requested is_known_terminated"),
        (
            {**REMOVED, "deleted": True},
            "is_termination_requested is_known_terminated should_content_be_removed",
        ),
        (
            {**REMOVED, "evicted": True},
            "is_termination_requested is_known_terminated should_content_be_removed",
        ),
        (
            {**REMOVED, "finished": True},
            "is_termination_requested is_known_terminated should_be_finished",
        ),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_queries_by_state_of_the_record(known: dict[str, Any], yes: str, synced: bool) -> None:
    machine = WorkerMachine(RequeueSettings())
    machine.synced = synced
    machine.records["u"] = WorkerRecord("u", "p_d", **known)
    assert machine.names.may_start("p_d", "u", lambda uid: True)
    queries = WorkerQueries(machine)
    answers = {
        each: getattr(queries, each)("p_d" if each == "is_static_terminating" else "u")
        for each in QUESTIONS
    }
    assert [each for each, answer in answers.items() if answer] == [
        each for each in QUESTIONS if each in yes.split()
    ]
    assert (queries.name_holder("p_d"), queries.name_holder("q_d")) == ("u", "")


@pytest.mark.parametrize("synced", [False, True])
def test_queries_without_a_record(synced: bool) -> None:
    """Until all pods are known, a pod without a record may be running."""
    machine = WorkerMachine(RequeueSettings())
    machine.synced = synced
    queries = WorkerQueries(machine)
    yes = [each for each in QUESTIONS if getattr(queries, each)("u")]
    after = ["should_content_be_removed", "should_be_finished"]
    assert yes == (after if synced else ["could_have_running_containers"])
    assert (queries.record("u"), dict(queries.all())) == (None, {})


def test_a_name_is_for_one_at_a_time_in_their_order() -> None:
    names, alive = StaticNames(), {"a", "b", "c", "d"}

    def may(uid: str) -> bool:
        return names.may_start("n", uid, alive.__contains__)

    assert may("a")
    for uid in ("b", "c", "b", "d"):
        names.wait("n", uid)
    assert names.in_use() == NamesInUse({"n": "a"}, {"n": ("b", "c", "d")})
    assert [may(uid) for uid in "abcd"] == [True, False, False, False]
    assert names.started("n") == "a"
    assert names.started("m") is None
    assert names.release("n", "b") == [], "it only leaves the queue"
    assert names.started("n") == "a"
    assert names.release("n", "a") == ["c", "d"]
    assert (may("d"), names.started("n")) == (False, None)
    names.wait("n", "a")
    alive.discard("c")
    assert [may(uid) for uid in "ad"] == [False, True]
    assert names.in_use() == NamesInUse({"n": "d"}, {"n": ("a",)})
    assert names.release("n", "d") == ["a"]
    assert may("a")
    assert names.in_use() == NamesInUse({"n": "a"})
    assert names.release("n", "a") == []
    assert names.in_use() == NamesInUse()
    assert may("e"), "nobody waits any more"
    assert names.release("m", "x") == []
