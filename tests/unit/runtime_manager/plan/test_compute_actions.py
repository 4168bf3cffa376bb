"""The decision table of a sync, row by row (docs/reference/behaviour.md, c)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import (
    ContainerStatus,
    KillReason,
    ProbeOutcome,
    ProbeResults,
    SandboxStatus,
    restart_all_active,
)
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from tests.kit.costs import calls
from tests.kit.records import (
    DEAD,
    READY,
    container,
    created,
    exited,
    has,
    make_pod,
    running,
    sidecar,
    summary,
    unknown,
)

NO_PROBES = ProbeResults()
FAILED = ProbeOutcome.FAILURE
INITS = ("init-a", "init-b", "init-c")
SIDECARS = tuple(sidecar(name) for name in ("side-a", "side-b", "side-c"))
EXIT_42_RESTARTS = [
    {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
    {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1, 42]}},
]
PROBED: dict[str, Any] = {"startupProbe": {"exec": {}}, "livenessProbe": {"exec": {}}}


def plan(pod: Any, status: Any, probes: ProbeResults = NO_PROBES, **more: Any) -> dict[str, Any]:
    return summary(compute_pod_actions(pod, status, probes, **more))


SANDBOX_ROWS = [
    ("new-pod", make_pod("a", "b"), has(sandboxes=()), {"create": 0, "regular": ["a", "b"]}),
    (
        "sandbox-dead",
        make_pod("a", "b"),
        has(running("a"), exited("b", 1), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a", "b"]},
    ),
    (
        "sandbox-dead-without-records",
        make_pod("a", policy="OnFailure"),
        has(sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a"]},
    ),
    (
        "sandbox-dead-under-running-containers",
        make_pod("a", "b", policy="OnFailure"),
        has(running("a"), unknown("b"), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a", "b"]},
    ),
    (
        "two-ready",
        make_pod("a"),
        has(
            running("a"),
            sandboxes=(
                SandboxStatus("new", True, attempt=4, ips=("10.0.0.3",)),
                SandboxStatus("old", True, attempt=3, ips=("10.0.0.2",)),
            ),
        ),
        {"create": 5, "regular": ["a"]},
    ),
    (
        "only-the-older-is-ready",
        make_pod("a"),
        has(
            sandboxes=(
                SandboxStatus("new", False, attempt=1),
                SandboxStatus("old", True, ips=("10.0.0.2",)),
            )
        ),
        {"create": 2, "regular": ["a"]},
    ),
    (
        "network-mode-changed",
        make_pod("a", hostNetwork=True),
        has(running("a")),
        {"create": 1, "regular": ["a"]},
    ),
    (
        "no-ip",
        make_pod("a"),
        has(running("a"), sandboxes=(SandboxStatus("sandbox-1", True),)),
        {"create": 1, "regular": ["a"]},
    ),
    (
        "init-first",
        make_pod("a", init=INITS),
        has(*(exited(i) for i in INITS), sandboxes=(DEAD,)),
        {"create": 1, "init": ["init-a"]},
    ),
    (
        "ephemeral-not-restarted",
        make_pod("a", ephemeral=("debug",)),
        has(running("a"), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a"]},
    ),
    (
        "on-failure-leaves-the-succeeded",
        make_pod("a", "b", policy="OnFailure"),
        has(exited("a", 0), exited("b", 1), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["b"]},
    ),
    (
        "container-policy-wins-over-always",
        make_pod("a", container("b", restartPolicy="OnFailure"), "c"),
        has(running("a"), exited("b", 0), running("c"), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a", "c"]},
    ),
    (
        "container-policy-wins-over-on-failure",
        make_pod(container("a", restartPolicy="Always"), policy="OnFailure"),
        has(exited("a", 0), sandboxes=(DEAD,)),
        {"create": 1, "regular": ["a"]},
    ),
    (
        "on-failure-all-succeeded",
        make_pod("a", "b", policy="OnFailure"),
        has(exited("a", 0), exited("b", 0), sandboxes=(DEAD,)),
        {},
    ),
    (
        "never-and-has-run",
        make_pod("a", "b", policy="Never"),
        has(exited("a", 0), exited("b", 2), sandboxes=(DEAD,)),
        {},
    ),
    (
        "never-init-failed",
        make_pod("a", init=INITS, policy="Never"),
        has(exited("init-c", 137), sandboxes=(DEAD,)),
        {},
    ),
    (
        "never-but-nothing-was-created",
        make_pod("a", policy="Never"),
        has(sandboxes=(SandboxStatus("s", False, attempt=1),)),
        {"create": 2, "regular": ["a"]},
    ),
    (
        "never-first-attempt-with-records",
        make_pod("a", policy="Never"),
        has(exited("a", 1), sandboxes=()),
        {"kill_pod": True},
    ),
]


@pytest.mark.parametrize(
    ("pod", "status", "expected"),
    [row[1:] for row in SANDBOX_ROWS],
    ids=[r[0] for r in SANDBOX_ROWS],
)
def test_a_sandbox_that_must_go(pod: Any, status: Any, expected: dict[str, Any]) -> None:
    assert plan(pod, status) == {"kill_pod": True, **expected}


def test_which_sandbox_is_replaced() -> None:
    dead = compute_pod_actions(make_pod(), has(sandboxes=(DEAD,)), NO_PROBES)
    assert dead.sandbox_id == "sandbox-1"
    assert dead.replaces_sandbox
    moved = compute_pod_actions(make_pod(hostNetwork=True), has(), NO_PROBES)
    assert moved.sandbox_id == ""
    assert moved.create_sandbox
    assert not moved.replaces_sandbox


def test_host_network_needs_no_ip_and_neither_does_a_runtime_without_network_block() -> None:
    host = SandboxStatus("sandbox-1", True, host_network=True)
    assert plan(make_pod(hostNetwork=True), has(running("app"), sandboxes=(host,))) == {}
    silent = SandboxStatus("sandbox-1", True, has_network=False)
    assert plan(make_pod(), has(running("app"), sandboxes=(silent,))) == {}


REGULAR_ROWS = [
    ("all-run", make_pod("a", "b"), has(running("a"), running("b")), {}),
    ("none-yet", make_pod("a", "b"), has(), {"regular": ["a", "b"]}),
    (
        "always",
        make_pod("a", "b", "c"),
        has(exited("a", 0), exited("b", 1), running("c")),
        {"regular": ["a", "b"]},
    ),
    (
        "on-failure",
        make_pod("a", "b", "c", policy="OnFailure"),
        has(exited("a", 0), exited("b", 1), running("c")),
        {"regular": ["b"]},
    ),
    (
        "never",
        make_pod("a", "b", "c", policy="Never"),
        has(exited("a", 0), exited("b", 1), running("c")),
        {},
    ),
    ("created", make_pod("a", policy="Never"), has(created("a")), {"regular": ["a"]}),
    (
        "unknown-is-killed-first",
        make_pod("a", "b", policy="Never"),
        has(running("a"), unknown("b")),
        {"kill": ["b"], "regular": ["b"]},
    ),
    (
        "newest-record-counts",
        make_pod("a", policy="Never"),
        has(running("a"), exited("a", 1, suffix="-old")),
        {},
    ),
    (
        "container-always-over-never",
        make_pod(container("a", restartPolicy="Always"), "b", policy="Never"),
        has(exited("a", 0), exited("b", 0)),
        {"regular": ["a"]},
    ),
    (
        "container-on-failure-over-never",
        make_pod(
            container("a", restartPolicy="OnFailure"),
            container("b", restartPolicy="OnFailure"),
            policy="Never",
        ),
        has(exited("a", 0), exited("b", 3)),
        {"regular": ["b"]},
    ),
    (
        "container-never-over-always",
        make_pod(container("a", restartPolicy="Never"), "b"),
        has(exited("a", 3), running("b")),
        {},
    ),
    (
        "rule-matches-in",
        make_pod(container("a", restartPolicy="Never", restartPolicyRules=EXIT_42_RESTARTS), "b"),
        has(exited("a", 42), running("b")),
        {"regular": ["a"]},
    ),
    (
        "rule-matches-not-in",
        make_pod(container("a", restartPolicy="Never", restartPolicyRules=EXIT_42_RESTARTS), "b"),
        has(exited("a", 7), running("b")),
        {"regular": ["a"]},
    ),
    (
        "no-rule-matches",
        make_pod(container("a", restartPolicy="Never", restartPolicyRules=EXIT_42_RESTARTS), "b"),
        has(exited("a", 1), running("b")),
        {},
    ),
    (
        "rules-need-a-container-policy",
        make_pod(container("a", restartPolicyRules=EXIT_42_RESTARTS), "b", policy="Never"),
        has(exited("a", 42), running("b")),
        {},
    ),
    (
        "deleted-pod-starts-nothing",
        make_pod("a", "b", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        has(running("a"), exited("b", 1)),
        {},
    ),
    (
        "definition-changed-restarts-whatever-the-policy",
        make_pod("a", "b", policy="Never"),
        has(running("a", image="other:2"), running("b")),
        {"kill": ["a"], "regular": ["a"]},
    ),
    (
        "all-done-never",
        make_pod("a", "b", policy="Never"),
        has(exited("a", 0), exited("b", 1)),
        {"kill_pod": True},
    ),
    (
        "all-done-on-failure",
        make_pod("a", "b", policy="OnFailure"),
        has(exited("a", 0), exited("b", 0)),
        {"kill_pod": True},
    ),
    (
        "all-done-but-the-ephemeral",
        make_pod("a", ephemeral=("debug", "more"), policy="Never"),
        has(exited("a", 0), running("debug")),
        {"kill_pod": True},
    ),
    (
        "all-done-ends-sidecars",
        make_pod("a", init=(sidecar("side"),), policy="Never"),
        has(exited("a", 0), running("side", image="other:2")),
        {"kill_pod": True},
    ),
    (
        "ephemeral-once",
        make_pod("a", ephemeral=("one", "two", "three")),
        has(running("a"), exited("one", 1), unknown("three")),
        {"ephemeral": ["two"]},
    ),
]


@pytest.mark.parametrize(
    ("pod", "status", "expected"),
    [row[1:] for row in REGULAR_ROWS],
    ids=[r[0] for r in REGULAR_ROWS],
)
def test_regular_and_ephemeral_containers(pod: Any, status: Any, expected: dict[str, Any]) -> None:
    assert plan(pod, status) == expected


@pytest.mark.parametrize(
    ("policy", "container_policy", "restarts"),
    [
        ("Always", None, True),
        ("OnFailure", None, True),
        ("Never", None, False),
        ("Never", "Always", True),
        ("Never", "OnFailure", True),
        ("Always", "Never", False),
    ],
)
@pytest.mark.parametrize("kind", ["liveness", "startup"])
def test_a_failed_probe_kills(
    kind: str, policy: str, container_policy: str | None, restarts: bool
) -> None:
    extra = {"restartPolicy": container_policy} if container_policy else {}
    pod = make_pod(container("a", **extra), "b", policy=policy)
    probes = ProbeResults(**{kind: {"id-a": FAILED}})
    actions = compute_pod_actions(pod, has(running("a"), running("b")), probes)
    expected = {"kill": ["a"], "regular": ["a"]} if restarts else {"kill": ["a"]}
    assert summary(actions) == expected
    suffix = ", will be restarted" if restarts else ""
    (kill,) = actions.containers_to_kill
    assert kill.message == f"Container a failed {kind} probe{suffix}"
    assert kill.reason is (
        KillReason.LIVENESS_PROBE if kind == "liveness" else KillReason.STARTUP_PROBE
    )


def test_the_last_container_killed_for_good_ends_the_pod() -> None:
    probes = ProbeResults(liveness={"id-app": FAILED})
    assert plan(make_pod(policy="Never"), has(running("app")), probes) == {"kill_pod": True}


@pytest.mark.parametrize("outcome", [ProbeOutcome.SUCCESS, ProbeOutcome.UNKNOWN])
def test_other_probe_results_kill_nothing(outcome: ProbeOutcome) -> None:
    probes = ProbeResults(
        liveness={"id-app": outcome}, startup={"id-app": outcome}, readiness={"id-app": FAILED}
    )
    assert plan(make_pod(), has(running("app")), probes) == {}


def test_texts_of_killing_events() -> None:
    pod = make_pod("a", "b", init=(sidecar("side"),))
    status = has(running("a", image="old:1"), unknown("b"), unknown("side"))
    actions = compute_pod_actions(pod, status, NO_PROBES)
    assert {kill.name: kill.message for kill in actions.containers_to_kill} == {
        "a": "Container a definition changed, will be restarted",
        "b": 'Container is in "unknown" state, try killing it before restart',
        "side": 'Init container is in "unknown" state, try killing it before restart',
    }


ALL_INITS_DONE = tuple(exited(name) for name in INITS)
SIDES_UP = tuple(running(s["name"]) for s in SIDECARS)

INIT_ROWS = [
    ("none-yet", "Always", INITS, (), {"init": ["init-a"]}),
    ("first-runs", "Always", INITS, (running("init-a"),), {}),
    ("first-done", "Always", INITS, (exited("init-a"),), {"init": ["init-b"]}),
    ("all-done", "Always", INITS, ALL_INITS_DONE, {"regular": ["app"]}),
    ("last-is-enough", "Always", INITS, (exited("init-c"),), {"regular": ["app"]}),
    ("last-runs-others-lost", "Always", INITS, (running("init-c"),), {}),
    ("created", "Never", INITS, (created("init-b"), exited("init-a")), {"init": ["init-b"]}),
    ("failed-always", "Always", INITS, (exited("init-b", 1),), {"init": ["init-b"]}),
    ("failed-on-failure", "OnFailure", INITS, (exited("init-b", 1),), {"init": ["init-b"]}),
    ("failed-never", "Never", INITS, (exited("init-b", 1),), {"kill_pod": True}),
    (
        "oom-killed-with-code-0",
        "Never",
        INITS,
        (exited("init-c", 0, reason="OOMKilled"),),
        {"kill_pod": True},
    ),
    (
        "oom-killed-always",
        "Always",
        INITS,
        (exited("init-c", 0, reason="OOMKilled"),),
        {"init": ["init-c"]},
    ),
    (
        "unknown-always",
        "Always",
        INITS,
        (unknown("init-c"),),
        {"kill": ["init-c"], "init": ["init-c"]},
    ),
    (
        "unknown-on-failure",
        "OnFailure",
        INITS,
        (unknown("init-c"),),
        {"kill": ["init-c"], "init": ["init-c"]},
    ),
    ("unknown-never", "Never", INITS, (unknown("init-c"),), {"kill_pod": True}),
    (
        "own-policy-wins-over-never",
        "Never",
        ("init-a", container("init-b", restartPolicy="OnFailure")),
        (exited("init-b", 1),),
        {"init": ["init-b"]},
    ),
    (
        "own-rule-wins",
        "Always",
        (container("init-a", restartPolicy="Never", restartPolicyRules=EXIT_42_RESTARTS),),
        (exited("init-a", 42),),
        {"init": ["init-a"]},
    ),
    (
        "own-never-wins-over-always",
        "Always",
        (container("init-a", restartPolicy="Never"),),
        (exited("init-a", 1),),
        {"kill_pod": True},
    ),
    ("regular-runs-inits-forgotten", "Always", INITS, (running("app"),), {}),
    ("regular-created-inits-forgotten", "Always", INITS, (created("app"),), {"regular": ["app"]}),
    ("regular-exited-is-no-proof", "Always", INITS, (exited("app", 1),), {"init": ["init-a"]}),
    ("regular-runs-failed-init-ignored", "Never", INITS, (running("app"), exited("init-c", 1)), {}),
    ("definition-changed-init-goes-on", "Always", INITS, (running("init-a", image="o:2"),), {}),
    ("sidecar-none-yet", "Always", SIDECARS, (), {"init": ["side-a"]}),
    ("sidecar-up-starts-next", "Always", SIDECARS, SIDES_UP[:1], {"init": ["side-b"]}),
    ("sidecars-up", "Never", SIDECARS, SIDES_UP, {"regular": ["app"]}),
    (
        "sidecar-created",
        "Never",
        SIDECARS,
        (created("side-c"), *SIDES_UP[:2]),
        {"init": ["side-c"]},
    ),
    ("sidecar-exited", "Never", SIDECARS, (exited("side-b"), SIDES_UP[0]), {"init": ["side-b"]}),
    (
        "sidecar-failed-never",
        "Never",
        SIDECARS,
        (exited("side-c", 137), *SIDES_UP[:2]),
        {"init": ["side-c"]},
    ),
    (
        "earlier-and-last-exited",
        "Always",
        SIDECARS,
        (exited("side-a"), SIDES_UP[1], exited("side-c")),
        {"init": ["side-a", "side-c"]},
    ),
    (
        "earlier-sidecar-exited",
        "Always",
        SIDECARS,
        (exited("side-a"), *SIDES_UP[1:]),
        {"init": ["side-a"], "regular": ["app"]},
    ),
    (
        "sidecar-records-lost",
        "Always",
        SIDECARS,
        (SIDES_UP[2],),
        {"init": ["side-a", "side-b"], "regular": ["app"]},
    ),
    (
        "sidecar-exited-while-regular-runs",
        "Never",
        SIDECARS,
        (*SIDES_UP[:2], exited("side-c", 137), running("app")),
        {"init": ["side-c"]},
    ),
    (
        "sidecar-lost-while-regular-runs",
        "Never",
        SIDECARS,
        (*SIDES_UP[:2], running("app")),
        {"init": ["side-c"]},
    ),
    (
        "sidecar-unknown-never",
        "Never",
        SIDECARS,
        (unknown("side-c"), *SIDES_UP[:2]),
        {"kill": ["side-c"], "init": ["side-c"]},
    ),
    (
        "sidecar-definition-changed",
        "Always",
        SIDECARS,
        (*SIDES_UP[:2], running("side-c", image="o:2")),
        {"kill": ["side-c"], "init": ["side-c"], "regular": ["app"]},
    ),
    (
        "sidecar-changed-and-next-to-start",
        "Always",
        SIDECARS,
        (running("side-a", image="o:2"),),
        {"kill": ["side-a"], "init": ["side-a", "side-b"]},
    ),
    ("all-main-done-never", "Never", SIDECARS, (*SIDES_UP, exited("app", 0)), {"kill_pod": True}),
    (
        "init-after-sidecar-runs",
        "Always",
        (SIDECARS[0], "init-a"),
        (running("side-a"), running("init-a")),
        {},
    ),
    (
        "init-after-sidecar-done",
        "Always",
        (SIDECARS[0], "init-a"),
        (running("side-a"), exited("init-a")),
        {"regular": ["app"]},
    ),
    (
        "init-after-sidecar-failed-never",
        "Never",
        (SIDECARS[0], "init-a"),
        (running("side-a"), exited("init-a", 1)),
        {"kill_pod": True},
    ),
]


@pytest.mark.parametrize(
    ("policy", "init", "records", "expected"),
    [row[1:] for row in INIT_ROWS],
    ids=[row[0] for row in INIT_ROWS],
)
def test_init_containers(
    policy: str, init: tuple[Any, ...], records: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    assert plan(make_pod(init=init, policy=policy), has(*records)) == expected


NEWER = (SandboxStatus("sandbox-2", ready=True, ips=("10.0.0.3",)), DEAD)


@pytest.mark.parametrize(
    ("record", "older", "expected"),
    [
        # initialization starts over in each sandbox
        (exited("init-a"), True, {"init": ["init-a"]}),
        (exited("init-c"), True, {"init": ["init-a"]}),
        (exited("init-a"), False, {"init": ["init-b"]}),
        (exited("init-c", 1), True, {"init": ["init-a"]}),
        (created("app"), True, {"init": ["init-a"]}),
        (running("app"), True, {"init": ["init-a"]}),
        (running("app"), False, {}),
        # but nothing runs twice
        (running("init-a"), True, {}),
    ],
)
def test_init_containers_and_records_of_an_older_sandbox(
    record: ContainerStatus, older: bool, expected: dict[str, Any]
) -> None:
    here = replace(record, sandbox_id="sandbox-1" if older else "sandbox-2")
    assert plan(make_pod(init=INITS, policy="Never"), has(here, sandboxes=NEWER)) == expected


def test_a_sidecar_without_a_liveness_probe_does_not_fail_one() -> None:
    probes = ProbeResults(liveness={"id-side-a": FAILED})
    pod = make_pod(init=(SIDECARS[0],))
    assert plan(pod, has(running("side-a"), running("app")), probes) == {}


PROBED_SIDECARS = tuple(sidecar(name, **PROBED) for name in ("side-a", "side-b"))
UNKNOWN = ProbeOutcome.UNKNOWN
OK = ProbeOutcome.SUCCESS
PROBE_ROWS = [
    ("startup-no-result", {}, {}, (running("side-a"),), {}),
    ("startup-unknown", {"id-side-a": UNKNOWN}, {}, (running("side-a"),), {}),
    ("startup-ok", {"id-side-a": OK}, {}, (running("side-a"),), {"init": ["side-b"]}),
    (
        "startup-failed",
        {"id-side-a": FAILED},
        {},
        (running("side-a"),),
        {"kill": ["side-a"], "init": ["side-a"]},
    ),
    (
        "liveness-unknown",
        {"id-side-a": OK},
        {"id-side-a": UNKNOWN},
        (running("side-a"),),
        {"init": ["side-b"]},
    ),
    (
        "liveness-failed",
        {"id-side-a": OK},
        {"id-side-a": FAILED},
        (running("side-a"),),
        {"kill": ["side-a"], "init": ["side-a", "side-b"]},
    ),
    (
        "last-liveness-failed",
        {"id-side-a": OK, "id-side-b": OK},
        {"id-side-b": FAILED},
        (running("side-a"), running("side-b")),
        {"kill": ["side-b"], "init": ["side-b"], "regular": ["app"]},
    ),
    ("last-startup-not-done", {"id-side-a": OK}, {}, (running("side-a"), running("side-b")), {}),
    (
        "startup-lost-while-regular-runs",
        {},
        {},
        (running("side-a"), running("side-b"), running("app")),
        {},
    ),
]


@pytest.mark.parametrize(
    ("startup", "liveness", "records", "expected"),
    [row[1:] for row in PROBE_ROWS],
    ids=[row[0] for row in PROBE_ROWS],
)
def test_probes_of_sidecars(
    startup: Any, liveness: Any, records: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    pod = make_pod(init=PROBED_SIDECARS)
    probes = ProbeResults(liveness=liveness, startup=startup)
    assert plan(pod, has(*records), probes) == expected


def test_ephemeral_containers_do_not_wait_for_initialization() -> None:
    pod = make_pod(init=INITS, ephemeral=("debug",))
    assert plan(pod, has(running("init-a"))) == {"ephemeral": ["debug"]}


RESTART_ALL = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]
SOURCE = {"restartPolicy": "Never", "restartPolicyRules": RESTART_ALL}


def test_restart_all_removes_sources_last() -> None:
    pod = make_pod(
        container("source", **SOURCE),
        "other",
        init=("init", container("init-source", **SOURCE), sidecar("side")),
        ephemeral=("debug",),
    )
    status = has(
        exited("source", 88),
        running("other"),
        exited("init"),
        exited("init-source", 88),
        running("side"),
        running("debug"),
        exited("source", 1, suffix="-old"),
    )
    actions = compute_pod_actions(pod, status, NO_PROBES, all_containers_restarting=True)
    assert summary(actions) == {
        "reset": ["id-source-old", "id-other", "id-init", "id-side", "id-source", "id-init-source"]
    }
    assert [reset.id for reset in actions.containers_to_reset if reset.kill] == [
        "id-other",
        "id-side",
    ]
    assert [reset.id for reset in actions.containers_to_reset if reset.source] == [
        "id-source",
        "id-init-source",
    ]


def test_restart_all_with_a_dead_sandbox_only_makes_a_new_one() -> None:
    pod = make_pod(container("a", **SOURCE), init=("init",))
    status = has(exited("a", 88), sandboxes=(DEAD,))
    assert plan(pod, status, all_containers_restarting=True) == {"kill_pod": True, "create": 1}


@pytest.mark.parametrize("removed", range(5))
def test_an_interrupted_restart_of_all_is_resumed(removed: int) -> None:
    pod = make_pod(container("a", **SOURCE), "b", init=("init", sidecar("side")))
    status = has(exited("a", 88), running("b"), exited("init"), running("side"))
    assert restart_all_active(pod, status)
    plan = compute_pod_actions(pod, status, NO_PROBES, all_containers_restarting=True)
    absent = {reset.id for reset in plan.containers_to_reset[:removed]}
    left = has(*(record for record in status.containers if record.id not in absent))
    assert restart_all_active(pod, left) is bool(left.containers)
    again = compute_pod_actions(
        pod, left, NO_PROBES, all_containers_restarting=restart_all_active(pod, left)
    )
    assert again.containers_to_reset == plan.containers_to_reset[removed:]
    assert [start.name for start in again.starts] == ([] if left.containers else ["init"])


def test_after_restart_all_the_pod_starts_from_its_first_init_container() -> None:
    pod = make_pod(container("a", **SOURCE), init=("init",))
    assert plan(pod, has()) == {"init": ["init"]}


def test_a_restart_of_all_names_the_container_whose_exit_requested_it() -> None:
    pod = make_pod(container("a", **SOURCE), container("b", **SOURCE))
    status = has(exited("a", 88), running("b", code=88))
    actions = compute_pod_actions(pod, status, NO_PROBES, all_containers_restarting=True)
    assert [(each.what, each.why) for each in actions.decisions] == [
        ("remove container b (id-b)", "all containers are to restart"),
        ("remove container a (id-a)", "all containers are to restart, as its exit requested"),
    ]


def test_nothing_is_removed_unless_all_are_to_restart() -> None:
    pod = make_pod(container("a", **SOURCE))
    assert not compute_pod_actions(pod, has(exited("a", 88)), NO_PROBES).containers_to_reset


def test_the_end_of_a_pod_has_a_reason() -> None:
    pod = make_pod("a", policy="Never", init=(sidecar("side"),))
    actions = compute_pod_actions(pod, has(exited("a"), running("side")), NO_PROBES)
    assert (actions.decisions[-1].what, actions.decisions[-1].why) == (
        "stop the pod",
        "no container runs and none is to be started",
    )


@pytest.mark.parametrize(
    ("pod", "records", "again"),
    [
        (make_pod("a"), [exited("a", 1)], {"a"}),
        (make_pod("a"), [exited("a", 0)], {"a"}),
        (make_pod("a"), [], set()),
        (make_pod("a"), [unknown("a")], set()),
        (make_pod("a"), [created("a")], set()),
        (make_pod("a", init=INITS), [exited("init-a", 1)], {"init-a"}),
        (make_pod("a", init=INITS), [exited("init-a", 0)], set()),
        (make_pod("a", init=(sidecar("side"),)), [exited("side", 0), running("a")], {"side"}),
    ],
)
def test_which_starts_are_restarts(pod: Any, records: list[Any], again: set[str]) -> None:
    found = compute_pod_actions(pod, has(*records), NO_PROBES)
    assert {start.name for start in found.starts if start.again} == again
    restarts = [each for each in found.decisions if each.restarts]
    assert {each.what.rpartition(" ")[2] for each in restarts} == again


def test_every_action_has_a_reason() -> None:
    pod = make_pod("a", "b", "c", init=(sidecar("side"),), ephemeral=("debug",), policy="OnFailure")
    status = has(exited("a", 0), exited("b", 3), running("c", image="old:1"), running("side"))
    actions = compute_pod_actions(pod, status, NO_PROBES)
    stated = {decision.what: decision.why for decision in actions.decisions}
    assert stated == {
        "start ephemeral container debug": "it was added and has never run",
        "leave container a": "it exited with 0 and the pod's restartPolicy is OnFailure",
        "start container b": "it exited with 3 and the pod's restartPolicy is OnFailure",
        "kill container c (id-c)": "Container c definition changed, will be restarted",
    }
    assert all(start.reason for start in actions.starts)


def test_it_is_cheap() -> None:
    pod = make_pod("a", "b")
    for status in (
        has(sandboxes=()),
        has(running("a"), running("b")),
        has(exited("a"), exited("b")),
    ):
        once = partial(compute_pod_actions, pod, status, NO_PROBES)
        assert calls(once) < 120


def test_unused_sandbox_is_used_again() -> None:
    actions = compute_pod_actions(make_pod(), has(sandboxes=(READY,)), NO_PROBES)
    assert (actions.sandbox_id, actions.create_sandbox) == ("sandbox-1", False)
    assert not actions.nothing_to_do
