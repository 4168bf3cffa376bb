"""Removed pods: the information kept, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.observe.explain.deaths import Actor, DeathCause, DeathKind
from kubeletpy.observe.explain.gather import explain_removed
from kubeletpy.observe.explain.server import MAX_CONTAINERS, MAX_LINES, log_ends, log_tails
from kubeletpy.observe.explain.snapshot import KEPT_S, MAX_PODS, RemovedPods
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus
from tests.kit.observe import NOW, exited, facts, not_ready


def test_the_last_pod_of_a_name_is_kept_for_an_hour_and_pods_are_bounded() -> None:
    removed = RemovedPods(lambda uid: replace(facts(), name=uid.partition("/")[0], uid=uid))
    for uid in ("a/1", "a/2", "a/2", *(f"p{number}/1" for number in range(MAX_PODS - 1))):
        removed.finished(uid)
    found = removed.find("default", "a", NOW + KEPT_S)
    assert found is not None
    assert (found[0].uid, found[1]) == ("a/2", KEPT_S)
    assert removed.find("default", "a", NOW + KEPT_S + 1) is None
    assert removed.find("other", "a/2", NOW + KEPT_S) == found, "by its uid"
    removed.finished("one more/1")
    assert removed.find("default", "a", NOW) is None
    assert removed.find("default", "p0", NOW) is not None


def test_large_pods_are_not_kept() -> None:
    def large(uid: str) -> Any:
        name, _, mega = uid.partition("/")
        made = replace(facts(), name=name, uid=uid)
        assert made.pod is not None
        text = "x" * int(float(mega) * (1 << 20))
        return replace(made, pod=Pod({**made.pod.object, "status": {"message": text}}))

    removed = RemovedPods(large)
    for uid in ("a/0.1", "b/0.9", "c/0.9", "d/0.9", "e/0.9"):
        removed.finished(uid)
    assert removed.find("default", "a", NOW) is not None
    removed.finished("f/0.5")
    kept = [name for name in "abcdef" if removed.find("default", name, NOW) is not None]
    assert kept == ["c", "d", "e", "f"], "the oldest make room"
    removed.finished("g/1.1")
    removed.finished("c/1.1")
    assert removed.find("default", "g", NOW) is None
    assert removed.find("default", "c", NOW) is None, "what is known is of an earlier pod"
    removed.finished("h/0.9")
    assert removed.find("default", "d", NOW) is not None


def test_facts_are_kept_from_the_end_of_the_worker() -> None:
    """The facts are kept when the worker has finished; a pod without an object is not kept."""
    known = [
        replace(facts(), uid="a", runtime_error="then"),
        replace(facts(), uid="a", runtime_error="later"),
        replace(facts(), uid="b", pod=None),
    ]
    removed = RemovedPods(lambda uid: known.pop(0))
    for uid in "aab":
        removed.finished(uid)
    found = removed.find("default", "web", NOW)
    assert found is not None
    assert (found[0].uid, found[0].runtime_error) == ("a", "then")


def test_the_cause_of_the_last_end_is_decided_after_the_worker_has_finished() -> None:
    first, last = (
        DeathCause(kind, Actor.AGENT) for kind in (DeathKind.LIVENESS, DeathKind.DELETED)
    )
    decided: dict[str, DeathCause] = {}
    removed = RemovedPods(lambda uid: replace(facts(), deaths={"a": first}), lambda uid: decided)
    removed.finished("a")
    decided["b"] = last
    found = removed.find("default", "web", NOW)
    assert found is not None
    assert found[0].deaths == {"a": first, "b": last}


def run(name: str, attempt: int, code: int) -> ContainerStatus:
    made = ContainerStatus(f"{name}{attempt}", name, ContainerState.EXITED, exit_code=code)
    return replace(made, finished_at=attempt, log_path=f"/logs/{name}/{attempt}.log")


def test_the_last_log_lines_of_the_last_failure() -> None:
    texts = {"main2": "starting\\nno route to db\\n \\n", "main1": "older", "well1": "fine"}

    def read(record: ContainerStatus) -> str:
        if record.id not in texts:
            raise FileNotFoundError(record.log_path)
        return texts[record.id].replace("\\n", "\n")

    texts |= {"blank1": " \\n", "main3": "of now", "unlogged1": "x"}
    records = [
        replace(run("main", 3, 9), state=ContainerState.RUNNING),
        run("blank", 1, 9),
        run("main", 2, 3),
        run("main", 1, 1),
        run("well", 1, 0),
        run("rotated", 1, 9),
        replace(run("unlogged", 1, 9), log_path=""),
        replace(run("running", 5, 0), state=ContainerState.RUNNING),
    ]
    assert log_ends(records, read) == {"main": "no route to db"}
    many = [run(f"c{number}", 1, 1) for number in range(MAX_CONTAINERS + 5)]
    assert len(log_ends(many, lambda record: "x")) == MAX_CONTAINERS


def test_the_last_lines_of_each_container() -> None:
    """The newest run counts, running or ended; an unreadable log is left out."""

    def read(record: ContainerStatus) -> str:
        if record.name == "rotated":
            raise FileNotFoundError(record.log_path)
        return "" if record.name == "silent" else f"a\n \nof {record.id}\n"

    records = [
        replace(run("main", 2, 0), state=ContainerState.RUNNING, restart_count=2),
        replace(run("main", 1, 1), restart_count=1),
        run("ended", 1, 0),
        run("rotated", 1, 9),
        run("silent", 1, 9),
        replace(run("unlogged", 1, 9), log_path=""),
    ]
    assert log_tails(records, read) == {"main": ["a", "of main2"], "ended": ["a", "of ended1"]}
    many = [run(f"c{number}", 1, 1) for number in range(MAX_CONTAINERS + 5)]
    found = log_tails(many, lambda record: "\n".join(map(str, range(MAX_LINES + 3))))
    assert len(found) == MAX_CONTAINERS
    assert found["c0"] == [str(number) for number in range(3, MAX_LINES + 3)]


ENDED: Any = {"finished": True, "terminating_at": NOW - 9, "terminated_at": NOW - 8}


@pytest.mark.parametrize(
    ("changes", "code", "since", "final"),
    [
        ({"worker": ENDED}, "gone", 9, True),
        ({"worker": ENDED, "status": not_ready(exited(0), phase="Succeeded")}, "gone", 9, True),
        ({"worker": ENDED, "status": not_ready(exited(1), phase="Failed")}, "failed", 20, True),
        ({"worker": ENDED, "deleted_for": ()}, "deleted-for-taint", 9, True),
        ({}, "running", None, False),
    ],
)
def test_explanations_of_removed_pods(
    changes: dict[str, Any], code: str, since: float | None, final: bool
) -> None:
    found = explain_removed(facts(**changes))
    assert (found.cause, found.final) == (code, final)
    assert found.first_seen == (None if since is None else NOW - since)
    assert bool(found.hint) is (code != "running")
