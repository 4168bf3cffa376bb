"""The phase table, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status.conditions import compute_phase, last_exit

from .samples import pod, reported

INIT = [{"name": "i"}]
SIDECAR = [{"name": "s", "restartPolicy": "Always"}]
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
