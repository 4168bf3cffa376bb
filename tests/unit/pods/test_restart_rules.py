"""Whether a container may run again (docs/reference/behaviour.md, c6)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.pods.runtime_status import (
    MOST_QUOTED,
    PodSyncResult,
    StartError,
    SyncAction,
    SyncResult,
    could_restart_all,
    event_observed_at,
    init_container_failed,
    matching_rule,
    reported_reason,
    restart_after_exit,
    restart_all_active,
    should_container_be_restarted,
)
from tests.kit.costs import is_linear
from tests.kit.records import container, created, exited, has, make_pod, running, unknown


def rule(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


ALL_ON_88 = {
    "restartPolicy": "Never",
    "restartPolicyRules": [rule("RestartAllContainers", "In", 88)],
}
ROWS: list[tuple[str, dict[str, Any], str, Any, bool, str]] = [
    ("deleted", {"deletionTimestamp": "x"}, "Always", has(), False, "the pod is being deleted"),
    ("no-record", {}, "Never", has(), True, "it has no container yet"),
    ("running", {}, "Always", has(running("app")), False, "it is running"),
    ("created", {}, "Never", has(created("app")), True, "its container is in state created"),
    ("unknown", {}, "Never", has(unknown("app")), True, "its container is in state unknown"),
    (
        "always-0",
        {},
        "Always",
        has(exited("app", 0)),
        True,
        "it exited with 0 and the pod's restartPolicy is Always",
    ),
    (
        "on-failure-0",
        {},
        "OnFailure",
        has(exited("app", 0)),
        False,
        "it exited with 0 and the pod's restartPolicy is OnFailure",
    ),
    (
        "on-failure-1",
        {},
        "OnFailure",
        has(exited("app", 1)),
        True,
        "it exited with 1 and the pod's restartPolicy is OnFailure",
    ),
    (
        "never-1",
        {},
        "Never",
        has(exited("app", 1)),
        False,
        "it exited with 1 and the pod's restartPolicy is Never",
    ),
]


@pytest.mark.parametrize(
    ("metadata", "policy", "status", "expected", "why"),
    [r[1:] for r in ROWS],
    ids=[r[0] for r in ROWS],
)
def test_restarts_follow_the_policy_of_the_pod(
    metadata: dict[str, Any], policy: str, status: Any, expected: bool, why: str
) -> None:
    pod = make_pod(policy=policy, metadata=metadata)
    assert should_container_be_restarted(pod, pod.containers[0], status) == (expected, why)


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Always", 0, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
        ("Sometimes", 1, False),
    ],
)
def test_a_container_policy_wins_over_the_pods_never(
    policy: str, code: int, expected: bool
) -> None:
    spec: Any = container("app", restartPolicy=policy)
    assert restart_after_exit("Never", spec, code)[0] is expected


def test_the_first_matching_rule_counts() -> None:
    rules = [
        rule("Restart", "Maybe", 1),
        {"action": "Restart"},
        rule("Restart", "In", 1, 2),
        rule("RestartAllContainers", "NotIn", 3),
    ]
    spec: Any = container("app", restartPolicyRules=rules)
    assert matching_rule(spec, 2) is rules[2]
    assert matching_rule(spec, 4) is rules[3]
    assert matching_rule(spec, 3) is None


def test_an_unknown_action_falls_back_to_the_policy() -> None:
    rules = [rule("Explode", "In", 1)]
    spec: Any = container("app", restartPolicy="Never", restartPolicyRules=rules)
    assert restart_after_exit("Always", spec, 1)[0] is False


def test_which_states_are_failures_of_an_init_container() -> None:
    assert init_container_failed(exited("i", 1))
    assert init_container_failed(exited("i", 0, reason="OOMKilled"))
    assert init_container_failed(unknown("i"))
    assert not init_container_failed(exited("i", 0))
    assert not init_container_failed(running("i"))


def test_restart_all_lasts_until_the_record_that_caused_it_is_removed() -> None:
    pod = make_pod(container("app", **ALL_ON_88), "other", init=("init",))
    assert could_restart_all(pod)
    assert restart_all_active(pod, has(exited("app", 88), running("other"), exited("init")))
    assert restart_all_active(pod, has(exited("app", 88)))
    assert not restart_all_active(pod, has())


def test_states_that_do_not_restart_all_containers() -> None:
    pod = make_pod(container("app", **ALL_ON_88), "other")
    assert not restart_all_active(pod, has(exited("app", 1), exited("other", 88)))
    assert not restart_all_active(pod, has(running("app"), exited("app", 88, suffix="-old")))
    assert not restart_all_active(make_pod("other"), has(exited("other", 88)))
    assert not could_restart_all(make_pod("other"))


# Start errors of a runtime are shown without the values of secrets.

KEY = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
SAID = 'runc: exec: "/x/hush": stat /x/hush: no such file'


@pytest.mark.parametrize(
    ("fields", "stated", "reported"),
    [
        ({}, SAID, SAID),
        ({"env": [{"name": "A", "value": "b"}]}, SAID, SAID),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, SAID, SAID),
        ({"env": [KEY]}, SAID, 'runc: exec: "***": stat ***: no such file'),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'a "b" "" c', 'a "***" "" c'),
        ({"env": [KEY]}, r'exec: "a \"b\" c" d', 'exec: "***" d'),
        ({"env": [KEY]}, "killed", "killed"),
        ({"env": [KEY]}, 'exec: "/x/hu', 'exec: "***'),
        ({"env": [KEY]}, 'exec: "a\\', 'exec: "***\\'),
        ({"env": [KEY]}, 'exec: "a\\\nb" c', 'exec: "***" c'),
        ({"env": [KEY]}, 'no "/x" in "/x/hush"', 'no "***" in "***"'),
        (
            {"env": [KEY]},
            " ".join(f'"{n:03}"' for n in range(MOST_QUOTED)),
            " ".join(['"***"'] * MOST_QUOTED),
        ),
        ({"env": [KEY]}, " ".join(f'"{n:03}"' for n in range(MOST_QUOTED + 1)), "***"),
    ],
)
def test_reasons(fields: Any, stated: str, reported: str) -> None:
    assert reported_reason(stated, cast(Any, {"name": "c", **fields})) == reported


@pytest.mark.parametrize("piece", ['"', '\\"', '"a', 'a"\\', '" '])
def test_a_reason_is_read_in_linear_time(piece: str) -> None:
    container = cast(Any, {"name": "c", "env": [KEY]})
    assert is_linear(lambda size: reported_reason('"' + piece * size, container))


# The age of an event is used only if it is plausible.

S = 10**9
WALL, STEADY = 1_700_000_000 * S, 500 * S


@pytest.mark.parametrize(
    ("created_at", "observed_at"),
    [
        (WALL, STEADY),
        (WALL - 3 * S, STEADY - 3 * S),
        (WALL + S, STEADY),  # two clocks of one machine are read one after the other
        (WALL + S + 1, None),  # the wall clock was set back after the event
        (WALL + 300 * S, None),
        (WALL - 300 * S, STEADY - 300 * S),  # it was set forward, or the event waited
        (WALL - 7 * 86_400 * S + 1, STEADY - 7 * 86_400 * S + 1),
        (WALL - 7 * 86_400 * S, None),
        (0, None),
        (-(2**62), None),
        (2**62, None),
    ],
)
def test_event_time(created_at: int, observed_at: int | None) -> None:
    assert event_observed_at(created_at, WALL, STEADY) == observed_at


# Results of a runtime sync.

REMOVED = StartError("RuntimeGone", "no answer")
STARTED = SyncResult(SyncAction.START_CONTAINER, "app")
HELD_BACK = SyncResult(SyncAction.START_CONTAINER, "db", StartError("CrashLoopBackOff", "wait"))
SYNC_RESULTS_SAID = "failed to StartContainer for db with CrashLoopBackOff: wait"


@pytest.mark.parametrize(
    ("results", "sync_error", "message"),
    [
        ((), None, ""),
        ((STARTED,), None, ""),
        ((STARTED, HELD_BACK), None, SYNC_RESULTS_SAID),
        ((STARTED,), REMOVED, "no answer"),
        (
            (HELD_BACK, STARTED, HELD_BACK),
            REMOVED,
            f"no answer; {SYNC_RESULTS_SAID}; {SYNC_RESULTS_SAID}",
        ),
    ],
)
def test_all_failures_on_one_line(
    results: tuple[SyncResult, ...], sync_error: StartError | None, message: str
) -> None:
    result = PodSyncResult(results, sync_error=sync_error)
    assert (result.error_message(), result.failed) == (message, bool(message))
