"""The pod conditions, row by row: status, reason and message."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status import conditions
from kubeletpy.status.conditions import compute_phase, is_ready, last_exit
from tests.kit.status import pod, reported

INIT = [{"name": "i"}]
SIDECAR = [{"name": "s", "restartPolicy": "Always"}]
RUNS: dict[str, Any] = {"state": {"running": {}}}
WAS_TRUE = [{"type": "Initialized", "status": "True"}]


def entry(**fields: Any) -> Any:
    return {"state": {"waiting": {}}, "ready": False, "started": False, **fields}


def status_and_texts(condition: Any) -> tuple[str, str, str]:
    return condition["status"], condition.get("reason", ""), condition.get("message", "")


@pytest.mark.parametrize(
    ("generation", "kind", "observed"),
    [(0, "Ready", None), (3, "Ready", 3), (3, conditions.RESTARTING_ALL, None)],
)
def test_the_generation_seen(generation: int, kind: str, observed: int | None) -> None:
    made = conditions.condition(kind, True, generation=generation)
    assert made.get("observedGeneration") == observed
    assert "observedGeneration" not in conditions.condition("Ready", True)


NOT_READY = "ContainersNotReady"
READY_ROWS: list[tuple[dict[str, Any], Any, str, tuple[str, str, str]]] = [
    ({}, {}, "Pending", ("False", "UnknownContainerStatuses", "")),
    ({}, {}, "Succeeded", ("False", "UnknownContainerStatuses", "")),
    ({}, {"a": entry(ready=True)}, "Running", ("True", "", "")),
    (
        {},
        {"a": entry(started=True)},
        "Running",
        ("False", NOT_READY, "containers with unready status: [a]"),
    ),
    ({}, {"a": entry()}, "Succeeded", ("False", "PodCompleted", "")),
    ({}, {"a": entry()}, "Failed", ("False", "PodFailed", "")),
    ({}, {"x": entry()}, "Failed", ("False", "PodFailed", "")),
    ({}, {"x": entry()}, "Succeeded", ("False", NOT_READY, "containers with unknown status: [a]")),
    (
        {"init": SIDECAR},
        {"a": entry(ready=True), "s": entry(started=True)},
        "Running",
        ("False", NOT_READY, "containers with unready status: [s]"),
    ),
    (
        {"init": SIDECAR},
        {"a": entry()},
        "Running",
        (
            "False",
            NOT_READY,
            "containers with unknown status: [s], containers with unready status: [a]",
        ),
    ),
    ({"init": INIT}, {"a": entry(ready=True)}, "Running", ("True", "", "")),
]


@pytest.mark.parametrize(("spec", "statuses", "phase", "expected"), READY_ROWS)
def test_containers_ready(spec: Any, statuses: Any, phase: str, expected: Any) -> None:
    assert status_and_texts(conditions.containers_ready(pod(**spec), statuses, phase)) == expected


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], 'corresponding condition of pod readiness gate "g" does not exist.'),
        (
            [{"type": "g", "status": "False"}],
            'the status of pod readiness gate "g" is not "True", but False',
        ),
        ([{"type": "h", "status": "True"}, {"type": "g", "status": "True"}], None),
    ],
)
def test_readiness_gates(others: Any, message: str | None) -> None:
    of = pod(readinessGates=[{"conditionType": "g"}])
    fine = conditions.condition("ContainersReady", True)
    expected = ("True", "", "") if message is None else ("False", "ReadinessGatesNotReady", message)
    made = conditions.ready(of, fine, others)
    assert (made["type"], status_and_texts(made)) == ("Ready", expected)
    bad = conditions.condition("ContainersReady", False, "PodFailed")
    assert status_and_texts(conditions.ready(of, bad, others)) == ("False", "PodFailed", "")


NOT_INIT = "ContainersNotInitialized"
INIT_ROWS: list[tuple[Any, Any, str, Any, tuple[str, str, str]]] = [
    (None, {}, "Pending", [], ("True", "", "")),
    (INIT, {}, "Pending", [], ("False", "UnknownContainerStatuses", "")),
    (INIT, {}, "Pending", WAS_TRUE, ("False", "UnknownContainerStatuses", "")),
    (INIT, {"i": entry(ready=True)}, "Pending", [], ("True", "", "")),
    (
        INIT,
        {"i": entry(started=True)},
        "Pending",
        [],
        ("False", NOT_INIT, "containers with incomplete status: [i]"),
    ),
    (
        INIT,
        {"a": entry()},
        "Pending",
        [],
        ("False", NOT_INIT, "containers with unknown status: [i]"),
    ),
    (
        [*INIT, *SIDECAR],
        {"i": entry()},
        "Pending",
        [],
        (
            "False",
            NOT_INIT,
            "containers with unknown status: [s], containers with incomplete status: [i]",
        ),
    ),
    (INIT, {"i": entry()}, "Succeeded", [], ("True", "PodCompleted", "")),
    (INIT, {"i": entry(ready=True)}, "Succeeded", [], ("True", "PodCompleted", "")),
    (
        INIT,
        {"a": entry()},
        "Succeeded",
        [],
        ("False", NOT_INIT, "containers with unknown status: [i]"),
    ),
    (SIDECAR, {"s": entry(started=True)}, "Pending", [], ("True", "", "")),
    (
        SIDECAR,
        {"s": entry(ready=True)},
        "Pending",
        [],
        ("False", NOT_INIT, "containers with incomplete status: [s]"),
    ),
    # once initialized, for good
    (INIT, {"i": entry()}, "Running", WAS_TRUE, ("True", "", "")),
    (
        INIT,
        {"i": entry()},
        "Running",
        [{"type": "Initialized", "status": "False"}],
        ("False", NOT_INIT, "containers with incomplete status: [i]"),
    ),
    (INIT, {"i": entry(), "a": RUNS}, "Running", [], ("True", "", "")),
    (INIT, {"i": entry(), "a": {"state": {"terminated": {}}}}, "Running", [], ("True", "", "")),
    (
        INIT,
        {"i": entry(), "a": entry(lastState={"terminated": {}})},
        "Running",
        [],
        ("True", "", ""),
    ),
]


@pytest.mark.parametrize(("init", "statuses", "phase", "before", "expected"), INIT_ROWS)
def test_initialized(init: Any, statuses: Any, phase: str, before: Any, expected: Any) -> None:
    made = conditions.initialized(pod(init=init), statuses, phase, before)
    assert (made["type"], status_and_texts(made)) == ("Initialized", expected)


@pytest.mark.parametrize(
    ("active", "phase", "status", "reason"),
    [
        (True, "Running", "True", "RestartAllContainersStarted"),
        (False, "Running", "False", ""),
        (True, "Succeeded", "False", "PodCompleted"),
        (True, "Failed", "False", "PodFailed"),
        (False, "Failed", "False", "PodFailed"),
    ],
)
def test_restarting_all(active: bool, phase: str, status: str, reason: str) -> None:
    assert status_and_texts(conditions.all_containers_restarting(active, phase))[:2] == (
        status,
        reason,
    )


@pytest.mark.parametrize("reason", ["", "r"])
@pytest.mark.parametrize("message", ["", "m"])
def test_a_condition_has_no_empty_fields(reason: str, message: str) -> None:
    supplied = {name: text for name, text in (("reason", reason), ("message", message)) if text}
    assert conditions.condition("Ready", True, reason, message) == {
        "type": "Ready",
        "status": "True",
        **supplied,
    }


# The phase table, row by row.

OK = {"exitCode": 0}
BAD = {"exitCode": 3}
NEVER = {"restartPolicy": "Never"}
ON_FAILURE = {"restartPolicy": "OnFailure"}
ROWS: list[tuple[str, dict[str, Any], list[dict[str, Any]], dict[str, Any], str]] = [
    ("no status at all", {}, [], {}, "Pending"),
    ("waiting", {}, [reported("a", waiting={})], {}, "Pending"),
    ("running", {}, [reported("a", running={})], {}, "Running"),
    ("init missing", {"init": INIT}, [reported("a", waiting={})], {}, "Pending"),
    (
        "init running",
        {"init": INIT},
        [reported("i", running={}), reported("a", waiting={})],
        {},
        "Pending",
    ),
    (
        "init failed, policy Never",
        {"init": INIT, **NEVER},
        [reported("i", terminated=BAD), reported("a", waiting={})],
        {},
        "Failed",
    ),
    (
        "init failed, policy Always",
        {"init": INIT},
        [reported("i", terminated=BAD), reported("a", waiting={})],
        {},
        "Pending",
    ),
    (
        "init waits after a failure that may not be repeated",
        {"init": INIT, **NEVER},
        [reported("i", waiting={}, last=BAD), reported("a", waiting={})],
        {},
        "Failed",
    ),
    (
        "init done, container runs",
        {"init": INIT},
        [reported("i", terminated=OK), reported("a", running={})],
        {},
        "Running",
    ),
    (
        "sidecar not started yet",
        {"init": SIDECAR},
        [reported("s", running={}, extra={"started": False}), reported("a", waiting={})],
        {},
        "Pending",
    ),
    (
        "sidecar restarting after the pod had begun",
        {"init": SIDECAR},
        [reported("s", running={}, extra={"started": False}), reported("a", running={})],
        {"regular_container_in_sandbox": True},
        "Running",
    ),
    ("sidecar missing", {"init": SIDECAR}, [reported("a", running={})], {}, "Pending"),
    (
        "ended sidecar does not keep a pod running",
        {"init": SIDECAR, **NEVER},
        [reported("s", terminated=BAD), reported("a", terminated=OK)],
        {},
        "Succeeded",
    ),
    ("exit 0, Always", {}, [reported("a", terminated=OK)], {}, "Running"),
    ("exit 0, OnFailure", ON_FAILURE, [reported("a", terminated=OK)], {}, "Succeeded"),
    ("exit 3, OnFailure", ON_FAILURE, [reported("a", terminated=BAD)], {}, "Running"),
    ("exit 0, Never", NEVER, [reported("a", terminated=OK)], {}, "Succeeded"),
    ("exit 3, Never", NEVER, [reported("a", terminated=BAD)], {}, "Failed"),
    ("crash loop", {}, [reported("a", waiting={}, last=BAD)], {}, "Running"),
    (
        "Always, but the worker is done: ok",
        {},
        [reported("a", terminated=OK)],
        {"terminated": True},
        "Succeeded",
    ),
    (
        "Always, but the worker is done: bad",
        {},
        [reported("a", terminated=BAD)],
        {"terminated": True},
        "Failed",
    ),
    (
        "a static pod stays Running when its worker is done",
        {"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}},
        [reported("a", terminated=BAD)],
        {"terminated": True},
        "Running",
    ),
    (
        "a rule of the container restarts it though the pod would not",
        {
            "containers_": [
                {
                    "name": "a",
                    "restartPolicy": "Never",
                    "restartPolicyRules": [
                        {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}
                    ],
                }
            ],
            **NEVER,
        },
        [reported("a", terminated=BAD)],
        {},
        "Running",
    ),
    (
        "restarting all counts as restartable",
        NEVER,
        [reported("a", waiting={}, last={"exitCode": 137, "reason": "RestartingAllContainers"})],
        {},
        "Running",
    ),
    (
        "one of two still runs",
        {"containers_": ["a", "b"], **NEVER},
        [reported("a", terminated=BAD), reported("b", running={})],
        {},
        "Running",
    ),
    (
        "one of two is unknown",
        {"containers_": ["a", "b"]},
        [reported("a", running={})],
        {},
        "Pending",
    ),
    (
        "one of two waits",
        {"containers_": ["a", "b"]},
        [reported("a", running={}), reported("b", waiting={})],
        {},
        "Pending",
    ),
    (
        "one of two may run again",
        {"containers_": ["a", "b"], **ON_FAILURE},
        [reported("a", terminated=BAD), reported("b", terminated=OK)],
        {},
        "Running",
    ),
    (
        "the other of two may run again",
        {"containers_": ["a", "b"], **ON_FAILURE},
        [reported("a", terminated=OK), reported("b", terminated=BAD)],
        {},
        "Running",
    ),
    (
        "one of two ended badly",
        {"containers_": ["a", "b"], **NEVER},
        [reported("a", terminated=BAD), reported("b", terminated=OK)],
        {},
        "Failed",
    ),
    (
        "about to run again after a good end: no success",
        {"containers_": ["a", "b"]},
        [reported("a", waiting={}, last=OK), reported("b", terminated=OK)],
        {"terminated": True},
        "Failed",
    ),
    (
        "an exit without a code is a good one",
        NEVER,
        [reported("a", terminated={})],
        {},
        "Succeeded",
    ),
    (
        "init ended without a code",
        {"init": INIT, **NEVER},
        [reported("i", terminated={}), reported("a", running={})],
        {},
        "Running",
    ),
    (
        "init done, policy Never",
        {"init": INIT, **NEVER},
        [reported("i", terminated=OK), reported("a", running={})],
        {},
        "Running",
    ),
    (
        "init failed with 1, policy Never",
        {"init": INIT, **NEVER},
        [reported("i", terminated={"exitCode": 1}), reported("a", running={})],
        {},
        "Failed",
    ),
    (
        "init failed and runs again while a container runs",
        {"init": INIT},
        [reported("i", terminated=BAD), reported("a", running={})],
        {},
        "Running",
    ),
    (
        "first of two sidecars not started yet",
        {"init": [*SIDECAR, {"name": "t", "restartPolicy": "Always"}]},
        [
            reported("s", running={}),
            reported("t", running={}, extra={"started": True}),
            reported("a", running={}),
        ],
        {},
        "Pending",
    ),
    (
        "sidecar started",
        {"init": SIDECAR},
        [reported("s", running={}, extra={"started": True}), reported("a", running={})],
        {},
        "Running",
    ),
    (
        "sidecar still runs after the last container",
        {"init": SIDECAR, **NEVER},
        [reported("s", running={}, extra={"started": True}), reported("a", terminated=OK)],
        {},
        "Running",
    ),
    (
        "sidecar waits, even after the pod had begun",
        {"init": SIDECAR},
        [reported("s", waiting={}), reported("a", running={})],
        {"regular_container_in_sandbox": True},
        "Pending",
    ),
]


@pytest.mark.parametrize(
    ("spec", "statuses", "facts", "phase"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_phase(
    spec: dict[str, Any], statuses: list[Any], facts: dict[str, Any], phase: str
) -> None:
    spec = dict(spec)
    containers = spec.pop("containers_", ["a"])
    supplied = {"terminated": False, "regular_container_in_sandbox": False, **facts}
    assert compute_phase(pod(*containers, **spec), statuses, **supplied) == phase


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ({"terminated": {"exitCode": 1}}, 1),
        ({"waiting": {}}, 2),
        ({"running": {}}, None),
        ({}, None),
    ],
)
def test_the_exit_that_counts(state: Any, code: int | None) -> None:
    """The last exit of a container, unless it runs again."""
    found = last_exit({"name": "a", "state": state, "lastState": {"terminated": {"exitCode": 2}}})
    assert (found or {}).get("exitCode") == code


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, False),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "DiskPressure", "status": "True"}], False),
    ],
)
def test_whether_a_node_or_a_pod_is_ready(conditions: Any, ready: bool) -> None:
    assert is_ready({"conditions": conditions}) is ready
