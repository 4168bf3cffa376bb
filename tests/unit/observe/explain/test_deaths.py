"""The cause of each way to die, and of ends that nobody can explain."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.observe.explain.deaths import Actor, DeathKind, Limit, decide, pod_end
from tests.kit.deaths import AT, DELETED, UNEXPLAINED, WAYS, ended, killed, stopped


@pytest.mark.parametrize("name", [*WAYS, *UNEXPLAINED])
def test_each_way_has_its_cause(name: str) -> None:
    way = {**WAYS, **UNEXPLAINED}[name]
    found = decide(way.ending)
    assert (found.kind, found.actor) == (way.kind, way.actor)
    assert found.evidence[0].startswith(f"exit code {way.ending.code}")
    assert found.text.endswith(")")


def test_there_are_sixty_ways_and_none_is_unknown() -> None:
    assert len(WAYS) == 60
    assert [name for name, way in WAYS.items() if way.kind is DeathKind.UNKNOWN] == []
    assert sum(way.actor is Actor.UNKNOWN for way in WAYS.values()) == 2


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        (
            "oom-at-its-limit",
            ("exit code 137 OOMKilled", "process hog, pid 71", "oom_kill counter 1"),
        ),
        ("sigkill-from-outside", ("exit code 137", "signal 9")),
        (
            "deleted-and-deaf",
            ("exit code 137", "killed 0.2s after the stop began, of a grace period of 30s"),
        ),
        (
            "oom-of-a-child-and-exit-137",
            ("exit code 137 OOMKilled", "process hog, pid 71", "memory limit of the container"),
        ),
    ],
)
def test_the_evidence(name: str, evidence: tuple[str, ...]) -> None:
    assert decide(WAYS[name].ending).evidence == evidence


def test_names_of_processes_are_bounded_and_on_one_line() -> None:
    hostile = replace(
        killed(Limit.CONTAINER), process="a\nfake: killed by root\x1b[31m" + "x" * 900
    )
    found = decide(ended(137, signal=9, main_oom=hostile))
    assert all(each.isprintable() and len(each) <= 200 for each in found.evidence)


def test_a_name_never_outweighs_the_signal() -> None:
    """A line about another process does not make a kill from outside one of the OOM killer."""
    found = decide(ended(137, signal=9, reason="OOMKilled", other_oom=killed(Limit.CONTAINER)))
    assert (found.kind, found.actor) == (DeathKind.SIGNAL, Actor.OUTSIDE)


def test_a_child_that_was_killed_long_ago_explains_nothing() -> None:
    found = decide(ended(137, other_oom=killed(Limit.CONTAINER, ago=60)))
    assert found.kind is DeathKind.EXITED
    assert "the kernel had killed process hog, pid 71" in found.evidence


def test_a_late_hook_keeps_the_reason_of_its_stop() -> None:
    found = decide(stopped(None, DELETED, code=137, late=True))
    assert "stopped because the pod was deleted" in found.evidence
    assert found.alarming is False
    assert AT > 0


def test_the_kernels_line_about_the_main_process_outweighs_missing_process_events() -> None:
    found = decide(ended(137, main_oom=killed(Limit.POD)))
    assert found.kind is DeathKind.OOM_POD


def test_a_pod_that_the_api_no_longer_has_was_deleted() -> None:
    """Nobody may have seen its deletion. A pod of a manifest was removed from that."""
    gone = pod_end("", "", deleted=False, removed=True, from_api=True)
    assert (gone.kind, gone.actor) == (DeathKind.DELETED, Actor.API)
    gone = pod_end("", "", deleted=False, removed=True, from_api=False)
    assert (gone.kind, gone.actor) == (DeathKind.REMOVED, Actor.MANIFEST)
