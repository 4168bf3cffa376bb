"""The pure state machine of probes follows docs/reference/behaviour.md, m1, m2."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.schedule import (
    EARLY_PAUSE_S,
    ProbedContainer,
    ProbeKind,
    ProbeSpec,
    ProbeState,
    container_state,
    end,
    finished,
    with_container_state,
)
from tests.kit.pods import make_pod

OK, BAD, UNKNOWN = ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE, ProbeOutcome.UNKNOWN
STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS
KINDS = (STARTUP, READINESS, LIVENESS)


def spec(kind: ProbeKind, **more: Any) -> ProbeSpec:
    return replace(ProbeSpec(kind), **more)


def due(state: ProbeState) -> float:
    assert state.due is not None
    return state.due


def running(kind: ProbeKind = LIVENESS, **more: Any) -> ProbedContainer:
    """A container that this kind of probe applies to: not started for startup probes."""
    seen = ProbedContainer("Running", "c1", running_for=0.0, started=kind is not STARTUP)
    return replace(seen, **more)


def begun(kind: ProbeKind, now: float = 100.0, draw: float = 0.0, **fields: float) -> ProbeState:
    return with_container_state(spec(kind, **fields), ProbeState(), running(kind), now, draw)


@pytest.mark.parametrize(
    ("kind", "initial"), [(STARTUP, UNKNOWN), (READINESS, BAD), (LIVENESS, OK)]
)
def test_initial_result_of_a_new_container(kind: ProbeKind, initial: ProbeOutcome) -> None:
    assert begun(kind).result is initial


@pytest.mark.parametrize("kind", KINDS)
def test_no_status_no_container_nothing_to_do(kind: ProbeKind) -> None:
    assert with_container_state(spec(kind), ProbeState(), None, 5, 0) == ProbeState()
    assert (
        with_container_state(spec(kind), ProbeState(), ProbedContainer("Pending"), 5, 0)
        == ProbeState()
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_phase_ends_it(kind: ProbeKind, phase: str) -> None:
    state = with_container_state(spec(kind), begun(kind), running(kind, phase=phase), 101, 0)
    assert (state.ended, state.result, state.due) == (True, None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_container_starts_afresh_also_from_hold_and_end(kind: ProbeKind) -> None:
    new = running(kind, container_id="c2")
    for old in (
        replace(begun(kind), on_hold=True, due=None, result=BAD),
        end(begun(kind)),
        replace(begun(kind), streak=2, last=BAD),
    ):
        state = with_container_state(spec(kind), old, new, 200, 0)
        assert state.container_id == "c2"
        assert (state.on_hold, state.ended, state.streak, state.last) == (False, False, 0, None)
        assert state.due is not None
        assert state.due >= 200


@pytest.mark.parametrize(
    ("kind", "started", "result"),
    [(STARTUP, False, None), (STARTUP, True, OK), (READINESS, True, None), (LIVENESS, True, None)],
)
def test_a_container_older_than_the_agent_keeps_what_the_api_shows(
    kind: ProbeKind, started: bool, result: ProbeOutcome | None
) -> None:
    seen = running(kind, survivor=True, started=started, running_for=500.0)
    assert with_container_state(spec(kind), ProbeState(), seen, 0, 0).result is result


@pytest.mark.parametrize(
    ("kind", "result"), [(READINESS, None), (LIVENESS, OK), (STARTUP, ProbeOutcome.UNKNOWN)]
)
def test_a_young_container_that_the_api_shows_as_ready_stays_ready(
    kind: ProbeKind, result: ProbeOutcome | None
) -> None:
    seen = running(kind, started=False, ready=True, running_for=3.0)
    assert with_container_state(spec(kind), ProbeState(), seen, 0, 0).result is result


def test_after_a_restart_of_the_agent_probes_spread_over_their_period() -> None:
    seen = running(READINESS, survivor=True, running_for=500.0)
    dues = [
        with_container_state(spec(READINESS), ProbeState(), seen, 50, n / 10).due for n in range(10)
    ]
    assert dues == pytest.approx([50 + n for n in range(10)])


def test_a_started_container_stays_started_after_a_restart_of_the_agent() -> None:
    seen = running(STARTUP, started=True, running_for=3.0)
    assert with_container_state(spec(STARTUP), ProbeState(), seen, 0, 0).result is OK


def test_a_container_is_started_when_that_is_seen_late() -> None:
    unseen = running(STARTUP, survivor=True, running_for=500.0)
    state = with_container_state(spec(STARTUP), ProbeState(), unseen, 0, 0.5)
    assert state.due is not None
    state = with_container_state(spec(STARTUP), state, replace(unseen, started=True), 1, 0.5)
    assert (state.result, state.due) == (OK, None)


@pytest.mark.parametrize("kind", KINDS)
def test_not_running_is_failure_until_it_runs_again(kind: ProbeKind) -> None:
    stopped = running(kind, running_for=None)
    state = with_container_state(spec(kind), begun(kind), stopped, 105, 0)
    assert (state.result, state.due, state.ended) == (BAD, None, False)
    removed = with_container_state(
        spec(kind), begun(kind), replace(stopped, may_run_again=False), 105, 0
    )
    assert removed.ended


@pytest.mark.parametrize(("kind", "ends"), [(STARTUP, True), (READINESS, False), (LIVENESS, True)])
def test_deletion_ends_liveness_and_startup(kind: ProbeKind, ends: bool) -> None:
    state = with_container_state(spec(kind), begun(kind), running(kind, deleting=True), 105, 0)
    assert state.ended is ends


@pytest.mark.parametrize("kind", KINDS)
def test_on_hold_nothing_but_a_new_container_counts(kind: ProbeKind) -> None:
    held = replace(begun(kind), on_hold=True, due=None, result=BAD)
    assert with_container_state(spec(kind), held, running(kind, running_for=None), 105, 0) == held


@pytest.mark.parametrize("kind", KINDS)
def test_other_probes_wait_for_the_startup_probe(kind: ProbeKind) -> None:
    other = running(kind, started=kind is STARTUP)
    assert with_container_state(spec(kind), ProbeState(), other, 5, 0).due is None
    waiting = with_container_state(spec(kind), begun(kind), other, 105, 0)
    assert waiting.due is None
    assert with_container_state(spec(kind), waiting, running(kind), 106, 0).due is not None


@pytest.mark.parametrize(("ran", "opens"), [(0.0, 130.0), (12.0, 118.0), (40.0, 100.0)])
def test_initial_delay_counts_from_the_containers_start(ran: float, opens: float) -> None:
    what = spec(READINESS, initial_delay=30)
    state = with_container_state(what, ProbeState(), running(READINESS, running_for=ran), 100, 0.5)
    assert state.due == opens
    assert state.counts_from == opens + 7.5


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.999])
def test_liveness_begins_within_the_second_half_of_a_period(draw: float) -> None:
    state = begun(LIVENESS, draw=draw)
    assert not state.early
    assert 105 <= due(state) <= 110


def test_a_due_time_is_not_moved_by_the_same_state() -> None:
    state = begun(LIVENESS, draw=0.2)
    assert with_container_state(spec(LIVENESS), state, running(), 103, 0.9) == state


@pytest.mark.parametrize("kind", [STARTUP, READINESS])
def test_early_runs_at_growing_pauses_until_the_first_that_counts(kind: ProbeKind) -> None:
    state, what = begun(kind, draw=0.0), spec(kind)
    pauses = []
    while state.early:
        now = due(state)
        state = finished(what, state, BAD, now)
        pauses.append(due(state) - now)
        assert (state.streak, state.last) == (0, None)
    assert pauses[:5] == pytest.approx([EARLY_PAUSE_S * 2**n for n in range(5)])
    assert state.due == state.counts_from == 105
    assert len(pauses) < 8


def test_an_early_success_counts_and_sets_the_grid() -> None:
    state = finished(spec(READINESS), begun(READINESS), OK, 100.03)
    assert state.result is OK
    assert (state.due, state.early) == (110, False)


@pytest.mark.parametrize("threshold", [1, 2, 5])
@pytest.mark.parametrize("kind", [STARTUP, LIVENESS])
def test_failure_threshold(kind: ProbeKind, threshold: int) -> None:
    what = spec(kind, failure_threshold=threshold)
    state = replace(begun(kind), due=110, counts_from=110)
    before = state.result
    for n in range(threshold):
        assert state.result is before
        state = finished(what, state, BAD, 110 + 10 * n)
    assert (state.result, state.on_hold, state.due) == (BAD, True, None)


def test_a_startup_probe_has_its_thresholds_time() -> None:
    """The time is failureThreshold periods, less at most half a period, for any jitter."""
    what = spec(STARTUP, failure_threshold=6, period=10)
    for draw in (0.0, 0.5, 0.99):
        state, now = begun(STARTUP, now=0.0, draw=draw), 0.0
        while not state.on_hold:
            now = due(state)
            state = finished(what, state, BAD, now)
        assert 55 <= now <= 60


def test_success_threshold_of_readiness() -> None:
    what = spec(READINESS, success_threshold=3)
    state = begun(READINESS, success_threshold=3)
    dues = []
    while state.result is not OK:
        dues.append(due(state))
        state = finished(what, state, OK, due(state))
    assert dues == [100, 110, 120]
    assert state.due == 130


def test_a_change_of_answer_counts_from_one() -> None:
    what = spec(READINESS, failure_threshold=2)
    state = finished(what, begun(READINESS), OK, 100)
    for found, result in ((BAD, OK), (OK, OK), (BAD, OK), (BAD, BAD), (BAD, BAD), (OK, OK)):
        state = finished(what, state, found, due(state))
        assert state.result is result


def test_after_success_liveness_continues_and_startup_is_on_hold() -> None:
    alive = finished(spec(LIVENESS), replace(begun(LIVENESS), counts_from=0), OK, 105)
    assert (alive.result, alive.on_hold, alive.due is None) == (OK, False, False)
    started = finished(spec(STARTUP), begun(STARTUP), OK, 100)
    assert (started.result, started.on_hold, started.due) == (OK, True, None)


def test_a_run_without_an_outcome_does_not_count() -> None:
    state = replace(begun(READINESS), due=110, counts_from=110, last=BAD, streak=2)
    after = finished(spec(READINESS), state, None, 110.5)
    assert (after.streak, after.last, after.due) == (2, BAD, 120)


@pytest.mark.parametrize(("took", "due"), [(0.2, 120), (9.9, 120), (14.0, 124), (25.0, 135)])
def test_the_grid_holds_and_slow_runs_follow_at_once(took: float, due: float) -> None:
    state = replace(begun(LIVENESS), due=110.0, counts_from=110)
    assert finished(spec(LIVENESS), state, OK, 110 + took).due == due


def test_a_run_that_outlives_its_reason_changes_nothing() -> None:
    for state in (
        replace(begun(LIVENESS), due=None),
        end(begun(LIVENESS)),
        replace(begun(LIVENESS), on_hold=True, due=None),
    ):
        assert finished(spec(LIVENESS), state, BAD, 110) == state


def test_a_spec_of_invalid_values_has_defaults_and_bounds() -> None:
    wild = {"periodSeconds": 0, "timeoutSeconds": -3, "failureThreshold": "x"}
    wild |= {"initialDelaySeconds": 10**15, "successThreshold": None}
    assert ProbeSpec.from_probe(LIVENESS, wild) == ProbeSpec(LIVENESS, initial_delay=10**9)
    assert ProbeSpec.from_probe(LIVENESS, {}) == ProbeSpec(LIVENESS, 10, 1, 0, 3, 1)


def test_the_least_numbers_of_a_spec_are_kept() -> None:
    fields = (
        "periodSeconds",
        "timeoutSeconds",
        "initialDelaySeconds",
        "failureThreshold",
        "successThreshold",
    )
    assert ProbeSpec.from_probe(LIVENESS, dict.fromkeys(fields, 1)) == ProbeSpec(
        LIVENESS, 1, 1, 1, 1, 1
    )
    assert ProbeSpec.from_probe(LIVENESS, dict.fromkeys(fields, 0)) == ProbeSpec(LIVENESS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("idle", [{"ended": True}, {"on_hold": True}])
def test_a_probe_that_ended_or_is_on_hold_stays_so_for_its_container(
    kind: ProbeKind, idle: dict[str, Any]
) -> None:
    ready = running(kind)
    state = ProbeState(ready.container_id, result=BAD, **idle)
    for seen in (ready, replace(ready, started=not ready.started), replace(ready, deleting=True)):
        assert with_container_state(spec(kind), state, seen, 100.0, 0.5) is state
    assert not state.early


def test_a_hold_counts_its_runs_anew() -> None:
    state = begun(LIVENESS)
    held = finished(spec(LIVENESS, failure_threshold=1), state, BAD, due(state))
    assert (held.on_hold, held.streak, held.last, held.due) == (True, 0, BAD, None)


# The state of a container that its probes read from a pod status.

NOW = 1_700_000_000.0
AGENT = NOW - 100


def seen(state: Any, *, started: bool = True, pod: Any = None, **container: Any) -> ProbedContainer:
    spec: Any = {"name": "main", "image": "i", **container}
    pod = pod or make_pod(containers=[spec])
    entry: Any = {"name": "main", "containerID": "containerd://c1", "started": started}
    status: Any = {"phase": "Running", "containerStatuses": [{**entry, "state": state}]}
    return container_state(pod, spec, status, now=NOW, agent_started_at=AGENT)


def ran(seconds: float) -> Any:
    return {"running": {"startedAt": format_time(NOW - seconds)}}


@pytest.mark.parametrize(
    ("ago", "survivor"), [(1, False), (99, False), (110, False), (111, True), (9999, True)]
)
def test_running(ago: float, survivor: bool) -> None:
    assert seen(ran(ago)) == ProbedContainer(
        "Running", "c1", running_for=ago, survivor=survivor, started=True
    )


def test_running_since_an_unknown_time() -> None:
    found = ProbedContainer("Running", "c1", running_for=0, survivor=False, started=True)
    assert seen({"running": {}}) == found
    spec: Any = {"name": "main", "image": "i"}
    status: Any = {"containerStatuses": [{"name": "main", "state": ran(5)}]}
    view = container_state(
        make_pod(containers=[spec]), spec, status, now=NOW, agent_started_at=AGENT
    )
    assert view == ProbedContainer(""), "without an id it is no container yet"


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_is_that_of_the_status(ready: bool) -> None:
    spec: Any = {"name": "main", "image": "i"}
    entry: Any = {"name": "main", "containerID": "x://c1", "ready": ready, "state": ran(5)}
    found = container_state(
        make_pod(containers=[spec]),
        spec,
        {"containerStatuses": [entry]},
        now=NOW,
        agent_started_at=AGENT,
    )
    assert found.ready is ready


def test_a_clock_that_runs_ahead_is_no_negative_time() -> None:
    assert seen(ran(-60)).running_for == 0


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_ended(policy: str, code: int, again: bool) -> None:
    spec = {"name": "main", "image": "i"}
    pod = make_pod(containers=[spec], restartPolicy=policy)
    found = seen({"terminated": {"exitCode": code}}, pod=pod)
    assert found == ProbedContainer("Running", "c1", started=True, may_run_again=again)


def test_an_exit_without_a_code_is_a_success() -> None:
    pod = make_pod(containers=[{"name": "main", "image": "i"}], restartPolicy="OnFailure")
    assert not seen({"terminated": {}}, pod=pod).may_run_again
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [0]}}
    ruled: Any = {"name": "main", "image": "i", "restartPolicyRules": [rule]}
    pod = make_pod(containers=[ruled], restartPolicy="Never")
    assert seen({"terminated": {}}, pod=pod).may_run_again


def test_waiting_for_a_restart_and_restart_all() -> None:
    assert seen({"waiting": {"reason": "CrashLoopBackOff"}}).may_run_again
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
    spec: Any = {"name": "main", "image": "i"}
    other = {**spec, "name": "other", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    pod = make_pod(containers=[spec, other], restartPolicy="Never")
    entries: Any = [
        {"name": "main", "containerID": "x://c1", "state": {"terminated": {"exitCode": 0}}},
        {"name": "other", "containerID": "x://c2", "state": {"terminated": {"exitCode": 3}}},
    ]
    status: Any = {"phase": "Running", "containerStatuses": entries}
    assert container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again
    entries[1]["state"] = {"terminated": {"exitCode": 4}}
    assert not container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again
    entries[1]["state"] = ran(5)
    assert not container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again


def test_nothing_known_yet() -> None:
    pod = make_pod()
    statuses: list[Any] = [{}, {"phase": "Pending"}, {"phase": "Pending", "containerStatuses": []}]
    for status in statuses:
        found = container_state(pod, pod.containers[0], status, now=NOW, agent_started_at=AGENT)
        assert found == ProbedContainer(status.get("phase", ""))


def test_sidecars_are_found_among_init_containers() -> None:
    spec: Any = {"name": "side", "image": "i", "restartPolicy": "Always"}
    pod = make_pod(initContainers=[spec], deleting=5)
    entry: Any = {"name": "side", "containerID": "x://c9", "state": ran(5)}
    status: Any = {"phase": "Running", "initContainerStatuses": [entry]}
    found = container_state(pod, spec, status, now=NOW, agent_started_at=AGENT)
    assert (found.container_id, found.started, found.deleting) == ("c9", False, True)
