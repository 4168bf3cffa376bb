"""Dead containers and sandboxes chosen for removal, at the edges of each rule."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.config.flags import NodeFlags
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import CONTAINER_NAME, POD_UID
from kubeletpy.runtime_manager.plan.gc_selection import (
    DeadContainer,
    GCPolicy,
    containers_to_remove,
    dead_containers,
    sandboxes_to_remove,
)

S = 10**9
LABELS = {POD_UID: "u", CONTAINER_NAME: "a"}


def test_the_policy_of_the_flags() -> None:
    assert GCPolicy.from_flags(NodeFlags()) == GCPolicy(0, 1, -1) == GCPolicy()
    flags = NodeFlags(
        minimum_container_ttl_duration=5.0,
        maximum_dead_containers_per_container=2,
        maximum_dead_containers=3,
    )
    assert GCPolicy.from_flags(flags) == GCPolicy(5.0, 2, 3)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"state": cri.CONTAINER_EXITED}, DeadContainer("c", "u", "a", 40 * S, False, False)),
        ({"state": cri.CONTAINER_UNKNOWN}, DeadContainer("c", "u", "a", 40 * S, True, False)),
        ({"state": cri.CONTAINER_CREATED}, DeadContainer("c", "u", "a", 40 * S, False, True)),
        (
            {"state": cri.CONTAINER_EXITED, "metadata": cri.ContainerMetadata(attempt=7)},
            DeadContainer("c", "u", "a", 40 * S, False, False, 7),
        ),
        ({"state": cri.CONTAINER_RUNNING}, None),
        ({"state": cri.CONTAINER_EXITED, "created_at": 40 * S + 1}, None),
        ({"state": cri.CONTAINER_EXITED, "id": ""}, None),
        ({"state": cri.CONTAINER_EXITED, "labels": {CONTAINER_NAME: "a"}}, None),
        (
            {"state": cri.CONTAINER_EXITED, "labels": {POD_UID: "u"}},
            DeadContainer("c", "u", "meta", 40 * S, False, False),
        ),
    ],
)
def test_containers_that_count_as_dead(fields: dict[str, Any], found: DeadContainer | None) -> None:
    """The time is 100 s; containers younger than 60 s stay."""
    metadata = cri.ContainerMetadata(name="meta")
    supplied = {"id": "c", "labels": LABELS, "created_at": 40 * S, "metadata": metadata, **fields}
    one = cri.Container(**supplied)
    policy = GCPolicy(min_age=60.0)
    assert dead_containers([one], policy, 100.0) == ([found] if found else [])
    assert dead_containers([one, one], policy, 100.0) == ([found] if found else [])


@pytest.mark.parametrize(
    ("created_at", "known_for", "dead"),
    [(40, 0.0, True), (41, 0.0, False), (41, 60.0, True), (400, 59.0, False), (400, 60.0, True)],
)
def test_a_container_is_as_old_as_the_agent_has_known_it(
    created_at: int, known_for: float, dead: bool
) -> None:
    """The time is 100 s, and the wall clock may have been set back since the creation."""
    one = cri.Container(
        id="c", labels=LABELS, created_at=created_at * S, state=cri.CONTAINER_EXITED
    )
    found = dead_containers([one], GCPolicy(min_age=60.0), 100.0, {"c": known_for})
    assert [each.id for each in found] == (["c"] if dead else [])


def dead(uid: str, name: str, *created: int, unstarted: bool = False) -> list[DeadContainer]:
    return [DeadContainer(f"{uid}{name}{n}", uid, name, n, False, unstarted) for n in created]


@pytest.mark.parametrize(
    ("records", "policy", "reported", "removed"),
    [
        # of unreported ends, two of each container stay, and one more by the policy
        (dead("u", "a", 1, 2, 3, 4, 5), GCPolicy(), "", ["ua1", "ua2"]),
        (dead("u", "a", 1, 2, 3, 4, 5), GCPolicy(max_per_container=0), "", ["ua1", "ua2", "ua3"]),
        (dead("u", "a", 1, 2, 3), GCPolicy(max_per_container=0), "u", ["ua1", "ua2", "ua3"]),
        # a container that never started has nothing to show; the agent that made it handles it
        (dead("u", "a", 1, 2, 3, unstarted=True), GCPolicy(max_per_container=0), "", []),
        (dead("r", "a", 1, 2, unstarted=True), GCPolicy(), "", ["ra1", "ra2"]),
        ([*dead("u", "a", 0, 1), *dead("u", "a", 2, unstarted=True)], GCPolicy(), "u", ["ua0"]),
        # reported records of a pod that may be removed are removed
        (dead("r", "a", 1, 2, 3), GCPolicy(), "", ["ra1"]),
        (dead("r", "a", 1, 2, 3), GCPolicy(), "r", ["ra1", "ra2", "ra3"]),
        # so many on the node: none, one, as many as there are
        (dead("u", "a", 1, 2), GCPolicy(max_per_container=-1, max_total=0), "u", ["ua1", "ua2"]),
        (dead("u", "a", 1, 2), GCPolicy(max_per_container=-1, max_total=1), "u", ["ua1"]),
        (dead("u", "a", 1, 2), GCPolicy(max_per_container=-1, max_total=2), "u", []),
        (dead("u", "a", 1, 2), GCPolicy(max_per_container=-1, max_total=-1), "u", []),
        (
            [*dead("u", "a", 1, 2, 3), *dead("u", "b", 4, 5, 6)],
            GCPolicy(max_per_container=-1, max_total=4),
            "u",
            ["ua1", "ub4"],
        ),
        (
            [*dead("u", "a", 1, 2, 3), *dead("u", "b", 4)],
            GCPolicy(max_per_container=-1, max_total=3),
            "u",
            ["ua1", "ua2"],
        ),
    ],
)
def test_containers_that_are_removed(
    records: list[DeadContainer], policy: GCPolicy, reported: str, removed: list[str]
) -> None:
    """Pod r may be removed. The oldest records go first, whatever the order of the list."""
    for order in (records, records[::-1]):
        found = containers_to_remove(
            order,
            policy,
            lambda uid: uid == "r",
            all_sources_ready=True,
            reported=lambda uid: uid == reported,
        )
        assert [one.id for one in found] == removed


def test_the_clock_was_put_back_and_the_last_record_stays() -> None:
    """The record of attempt 3 has an earlier date than those of attempts 1 and 2."""
    records = [
        DeadContainer(f"c{attempt}", "u", "a", created, False, attempt=attempt)
        for attempt, created in ((1, 800), (2, 900), (3, 100))
    ]
    found = containers_to_remove(records, GCPolicy(), lambda uid: False, all_sources_ready=True)
    assert {one.id for one in found} == {"c1", "c2"}
    sandboxes = [
        cri.PodSandbox(
            id=f"s{attempt}",
            labels={POD_UID: "u"},
            state=cri.SANDBOX_NOTREADY,
            created_at=created,
            metadata=cri.PodSandboxMetadata(attempt=attempt),
        )
        for attempt, created in ((0, 900), (1, 100))
    ]
    assert sandboxes_to_remove(sandboxes, frozenset(), lambda uid: False) == [("s0", "u")]


def test_sandboxes_that_are_removed() -> None:
    def made(name: str, uid: str, created: int, ready: bool = False) -> cri.PodSandbox:
        state = cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY
        labels = {POD_UID: uid} if uid else {}
        return cri.PodSandbox(id=name, labels=labels, created_at=created, state=state)

    sandboxes = [
        *(made(f"u{n}", "u", n) for n in (1, 2, 3)),
        *(made(f"r{n}", "r", n) for n in (4, 5)),
        made("w1", "w", 1),
        made("x1", "x", 6, ready=True),
        made("x2", "x", 7),
        made("", "r", 8),
        made("n", "", 9),
    ]
    expected = [("u1", "u"), ("r4", "r"), ("r5", "r")]
    for order in (sandboxes, sandboxes[::-1], [*sandboxes, *sandboxes]):
        found = sandboxes_to_remove(order, frozenset({"u2"}), lambda uid: uid in ("r", ""))
        assert found == expected
