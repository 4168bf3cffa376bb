"""The pod conditions, row by row: status, reason and message."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status import conditions

from .samples import pod

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
    (
        {},
        {"x": entry()},
        "Succeeded",
        ("False", NOT_READY, "containers with unknown status: [a]"),
    ),
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
