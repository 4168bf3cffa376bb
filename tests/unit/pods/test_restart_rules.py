"""Whether a container may run again (docs/reference/behaviour.md, c6)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.runtime_status import (
    could_restart_all,
    init_container_failed,
    matching_rule,
    restart_after_exit,
    restart_all_active,
    should_container_be_restarted,
)
from tests.unit.runtime_manager.pods_and_records import (
    container,
    created,
    exited,
    has,
    make_pod,
    running,
    unknown,
)


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
