"""How a status is kept, merged, patched and finished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.status import store
from kubeletpy.status.container_status import finished_status
from kubeletpy.status.store import LATE_S, NO_ANSWER, NO_MIRROR, may_wait, status_patch, unreported
from tests.kit.status import NOW, pod, reported
from tests.kit.virtual_time import EPOCH

from .test_status_manager import RecordingApi, manager, phase, settle

pytestmark = pytest.mark.virtual_time

T0 = "2026-01-01T00:00:00Z"
T1 = "2027-01-15T08:00:00Z"  # NOW


def ready(status: str, time: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        **({"lastTransitionTime": time} if time else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("before", "after", "time"),
    [
        ([], ready("True"), T1),
        ([ready("True", T0)], ready("True"), T0),
        ([ready("False", T0)], ready("True"), T1),
        ([ready("True", T0, reason="x")], ready("True", reason="y"), T0),
        ([ready("True")], ready("True"), T1),
        ([{**ready("True", T0), "type": "Initialized"}], ready("True"), T1),
        ([], ready("True", T0), T1),
        # conditions of others, and those that report a resize, come with their times
        ([], {**ready("True", T0), "type": "x/y"}, T0),
        ([], {**ready("True", T0), "type": "PodResizePending"}, T0),
        ([], {"type": "x/y", "status": "True"}, T1),
    ],
)
def test_transition_times(before: Any, after: Any, time: str) -> None:
    kept = store.prepare(pod(), {"conditions": [after]}, {"conditions": before}, NOW)
    assert kept["conditions"][0]["lastTransitionTime"] == time


def test_start_time_is_set_once() -> None:
    assert store.prepare(pod(), {}, {}, NOW)["startTime"] == T1
    assert store.prepare(pod(), {}, {"startTime": T0}, NOW)["startTime"] == T0
    assert store.prepare(pod(), {"startTime": T0}, {}, NOW)["startTime"] == T0


def test_messages_share_the_pods_limit() -> None:
    of = pod("a", "b")
    long = reported("a", terminated={"exitCode": 1, "message": "é" * 12288})
    kept = store.prepare(of, {"containerStatuses": [long]}, {}, NOW)  # type: ignore[list-item]
    message = kept["containerStatuses"][0]["state"]["terminated"]["message"]
    assert len(message.encode()) == 12288 // 2
    assert long["state"]["terminated"]["message"] == "é" * 12288, "the input is left alone"


@pytest.mark.parametrize(
    ("spec", "exit_code", "fine"),
    [
        ({"restartPolicy": "Always"}, 0, True),
        ({"restartPolicy": "Never"}, 1, False),
        ({"restartPolicy": "OnFailure"}, 0, False),
        ({"restartPolicy": "OnFailure"}, 1, True),
    ],
)
def test_ended_containers_run_again_only_by_policy(spec: Any, exit_code: int, fine: bool) -> None:
    old: Any = {"containerStatuses": [reported("a", terminated={"exitCode": exit_code})]}
    new: Any = {"containerStatuses": [reported("a", running={})]}
    problem = store.illegal_transition(pod(**spec), old, new)
    assert (problem is None) is fine
    another: Any = {"containerStatuses": [{**reported("a", running={}), "restartCount": 1}]}
    assert store.illegal_transition(pod(**spec), old, another) is None
    assert store.illegal_transition(pod(**spec), old, old) is None


def test_a_terminal_phase_is_held_back_while_containers_may_run() -> None:
    kept: Any = {"phase": "Failed", "reason": "Evicted", "conditions": [ready("True")]}
    held = store.merge_for_api({"phase": "Running"}, kept, containers_may_run=True)
    assert held["phase"] == "Running"
    assert "reason" not in held
    notified = store.merge_for_api({"phase": "Running"}, kept, containers_may_run=False)
    assert (notified["phase"], notified["reason"]) == ("Failed", "Evicted")
    assert notified["conditions"][0]["status"] == "False"
    assert notified["conditions"][0]["reason"] == "PodFailed"


def test_fields_of_others_survive_the_merge() -> None:
    """behaviour.md, u: ka69."""
    others: Any = {
        "resourceClaimStatuses": [{"name": "c"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "x"},
        "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "y"}],
    }
    in_api: Any = {**others, "conditions": [{"type": "x/y", "status": "True"}, ready("False")]}
    kept: Any = {"phase": "Running", "conditions": [ready("True")]}
    merged = store.merge_for_api(in_api, kept, containers_may_run=True)
    assert {name: merged.get(name) for name in others} == others
    patch: Any = status_patch("u", in_api, merged)
    assert patch["status"].keys() == {"phase", "conditions"}
    assert [c["type"] for c in merged["conditions"]] == ["x/y", "Ready"]
    assert merged["conditions"][1]["status"] == "True"


@pytest.mark.parametrize(
    ("spec", "statuses", "inits", "container", "init"),
    [
        ({}, [reported("a", running={})], [], 137, None),
        ({}, [reported("a", terminated={"exitCode": 4})], [], 4, None),
        (
            {"init": [{"name": "i"}]},
            [reported("a", waiting={})],
            [reported("i", waiting={})],
            None,
            137,
        ),
        (
            {"init": [{"name": "i"}]},
            [reported("a", waiting={})],
            [reported("i", terminated={"exitCode": 0})],
            137,
            0,
        ),
    ],
)
def test_unfinished_containers_get_exit_code_137_at_the_end(
    spec: Any, statuses: Any, inits: Any, container: int | None, init: int | None
) -> None:
    done = finished_status(
        pod(**spec),
        {"phase": "Running", "containerStatuses": statuses, "initContainerStatuses": inits},
        NOW,
    )

    def code(entries: Any) -> Any:
        return entries[0]["state"].get("terminated", {}).get("exitCode") if entries else None

    assert code(done["containerStatuses"]) == container
    assert code(done.get("initContainerStatuses")) == init
    assert done["phase"] == "Failed"


@pytest.mark.parametrize("name", ["state", "lastState"])
@pytest.mark.parametrize(("size", "left"), [(12288, 12288), (12289, 12288), (5, 5)])
def test_messages_above_the_limit_are_cut(name: str, size: int, left: int) -> None:
    entry: Any = {"name": "a", name: {"terminated": {"exitCode": 1, "message": "m" * size}}}
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        status: Any = {field: [entry]}
        prepared: Any = store.prepare(pod(), status, {}, NOW)
        (kept,) = prepared[field]
        assert len(kept[name]["terminated"]["message"]) == left


def test_a_short_message_beside_a_long_one_stays() -> None:
    entry: Any = {
        "name": "a",
        "state": {"terminated": {"exitCode": 1, "message": "m" * 12289}},
        "lastState": {"terminated": {"exitCode": 2}},
    }
    kept = store.prepare(pod(), {"containerStatuses": [entry]}, {}, NOW)["containerStatuses"][0]
    assert len(kept["state"]["terminated"]["message"]) == 12288
    assert kept["lastState"] == entry["lastState"]


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ({}, {"reason": "", "message": None, "podIPs": [], "hostIPs": {}}, True),
        ({"resourceClaimStatuses": [1]}, {}, True),
        ({"reason": "x"}, {}, False),
        ({"phase": "Running"}, {"phase": "Pending"}, False),
        ({"conditions": [{"type": "x/y", "status": "True"}]}, {}, True),
        ({"conditions": [ready("True")]}, {}, False),
        ({"conditions": [ready("True", T0)]}, {"conditions": [ready("True", T1)]}, True),
        ({"conditions": [ready("True")]}, {"conditions": [ready("False")]}, False),
        ({"conditions": [ready("True", reason="")]}, {"conditions": [ready("True")]}, True),
        ({"conditions": [ready("True", reason="x")]}, {"conditions": [ready("True")]}, False),
        ({"conditions": [ready("True", message="x")]}, {"conditions": [ready("True")]}, False),
        (
            {"conditions": [ready("True", observedGeneration=1)]},
            {"conditions": [ready("True", observedGeneration=2)]},
            True,
        ),
        (
            {"conditions": [{"type": "PodResizePending", "observedGeneration": 1}]},
            {"conditions": [{"type": "PodResizePending", "observedGeneration": 2}]},
            False,
        ),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, {}, False),
    ],
)
def test_differences_between_statuses(first: Any, second: Any, alike: bool) -> None:
    assert store.same(first, second) is alike


@pytest.mark.parametrize(
    ("spec", "field", "after", "problem"),
    [
        ({}, "containerStatuses", reported("a", running={}), True),
        ({}, "containerStatuses", reported("a", waiting={}), True),
        ({}, "containerStatuses", reported("a", terminated={}), False),
        ({}, "containerStatuses", reported("b", running={}), False),
        ({}, "containerStatuses", {"name": "a", "state": {"running": {}}}, True),
        ({}, "containerStatuses", reported("a", running={}, extra={"restartCount": 1}), False),
        ({"init": [{"name": "a"}]}, "initContainerStatuses", reported("a", running={}), True),
        (
            {"init": [{"name": "a", "restartPolicy": "Always"}]},
            "initContainerStatuses",
            reported("a", running={}),
            False,
        ),
        ({}, "initContainerStatuses", reported("a", running={}), False),
    ],
)
def test_containers_that_may_run_again(spec: Any, field: str, after: Any, problem: bool) -> None:
    of = pod("c" if "init" in spec else "a", restartPolicy="Never", **spec)
    before = reported("a", terminated={"exitCode": 1})
    if "restartCount" not in after:
        del before["restartCount"]
    entries: Any = {field: [reported("x", terminated={}), before]}
    found = store.illegal_transition(of, entries, {field: [after]})  # type: ignore[misc]
    assert (found is not None) is problem


def test_in_a_pod_that_always_restarts_any_may_come_back() -> None:
    of = pod({"name": "a", "restartPolicy": "Never"}, restartPolicy="Always")
    old: Any = {"containerStatuses": [reported("a", terminated={"exitCode": 1})]}
    new: Any = {"containerStatuses": [reported("a", running={})]}
    assert store.illegal_transition(of, old, new) is None


def test_a_restart_of_all_may_run_any_container_again() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [9]}}
    of = pod("a", {"name": "b", "restartPolicy": "Never", "restartPolicyRules": [rule]},
             restartPolicy="Never")  # fmt: skip
    old: Any = {"containerStatuses": [reported("a", terminated={"exitCode": 1})]}
    new: Any = {"containerStatuses": [reported("a", running={})]}
    assert store.illegal_transition(of, old, new) is None


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "ours"}
THEIRS = {"type": "DisruptionTarget", "status": "True", "reason": "theirs"}


@pytest.mark.parametrize(
    ("in_api", "kept", "may_run", "reasons"),
    [
        # the agent's own disruption condition is sent together with the phase it belongs to
        ({"phase": "Running"}, {"phase": "Failed", "conditions": [DISRUPTED]}, False, ["ours"]),
        ({"phase": "Running"}, {"phase": "Failed", "conditions": [DISRUPTED]}, True, []),
        ({"phase": "Running"}, {"phase": "Running", "conditions": [DISRUPTED]}, False, []),
        ({"phase": "Failed"}, {"phase": "Failed", "conditions": [DISRUPTED]}, False, []),
        (
            {"phase": "Running", "conditions": [THEIRS]},
            {"phase": "Failed", "conditions": [DISRUPTED]},
            False,
            ["ours"],
        ),
        (
            {"phase": "Running", "conditions": [THEIRS]},
            {"phase": "Running", "conditions": [DISRUPTED]},
            False,
            ["theirs"],
        ),
        (
            {"phase": "Running", "conditions": [{"type": "x/y", "reason": "x"}]},
            {"phase": "Failed", "conditions": [{"type": "x/y", "reason": "z"}]},
            False,
            ["x"],
        ),
    ],
)
def test_conditions_that_are_shown(in_api: Any, kept: Any, may_run: bool, reasons: Any) -> None:
    shown_ = store.merge_for_api(in_api, kept, containers_may_run=may_run)
    assert [condition.get("reason") for condition in shown_["conditions"]] == reasons


@pytest.mark.parametrize(
    ("in_api", "kept", "may_run", "expected"),
    [
        ({"phase": "Running", "reason": "r"}, {"phase": "Failed", "message": "m"}, True,
         {"phase": "Running", "reason": "r"}),
        ({"phase": "Failed"}, {"phase": "Succeeded"}, True, {"phase": "Succeeded"}),
        ({"phase": "Succeeded"}, {"phase": "Failed"}, True, {"phase": "Failed"}),
        ({"phase": "Pending"}, {"phase": "Running"}, True, {"phase": "Running"}),
        ({"resourceClaimStatuses": [1]}, {"resourceClaimStatuses": [2]}, True,
         {"resourceClaimStatuses": [1]}),
        ({}, {"resourceClaimStatuses": [2]}, True, {}),
    ],
)  # fmt: skip
def test_fields_that_are_shown(in_api: Any, kept: Any, may_run: bool, expected: Any) -> None:
    shown_ = store.merge_for_api(in_api, kept, containers_may_run=may_run)
    assert shown_ == {**expected, "conditions": []}


@pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "PodCompleted"), ("Failed", "PodFailed")]
)
def test_an_ended_pod_is_not_ready(phase: str, reason: str) -> None:
    kinds = ("Ready", "ContainersReady", "Initialized")
    every = [{"type": kind, "status": "True", "message": "m"} for kind in kinds]
    kept: Any = {"phase": phase, "conditions": every}
    shown_ = store.merge_for_api({}, kept, containers_may_run=False)
    ended = {"status": "False", "reason": reason}
    assert shown_["conditions"] == [
        {"type": "Ready", **ended},
        {"type": "ContainersReady", **ended},
        every[2],
    ]


def test_other_fields_beside_a_message_are_kept() -> None:
    entry: Any = {"name": "a", "state": {"terminated": {"exitCode": 1, "message": "é" * 5}}}
    status: Any = {"containerStatuses": [entry, {"name": "b", "state": {"waiting": {}}}]}
    prepared = store.prepare(pod("a", "b"), status, {}, NOW)
    assert prepared["containerStatuses"] == status["containerStatuses"]
    assert "initContainerStatuses" not in prepared


# The patch contains the differences and nothing else.

READY: Any = {"type": "Ready", "status": "True", "lastTransitionTime": T0}
FOREIGN: Any = {"type": "x/y", "status": "True"}
SICK = {"name": "v", "healthConditions": [{"status": "Degraded", "reason": "a", "message": ""}]}


@pytest.mark.parametrize(
    ("in_api", "reported", "changed"),
    [
        ({}, {}, None),
        ({"phase": "Running"}, {"phase": "Running"}, None),
        ({"phase": "Pending"}, {"phase": "Running"}, {"phase": "Running"}),
        ({}, {"phase": "Running"}, {"phase": "Running"}),
        ({"reason": "x"}, {}, {"reason": None}),
        ({"reason": "x"}, {"reason": ""}, {"reason": ""}),
        ({}, {"reason": ""}, None),
        ({"reason": ""}, {"reason": None}, None),
        # fields of other writers are left alone
        ({"resourceClaimStatuses": [1]}, {}, None),
        ({"resourceClaimStatuses": [1]}, {"resourceClaimStatuses": [2]}, None),
        # and those of an API that is newer than this version
        ({"newField": {"a": 1}}, {"phase": "Running"}, {"phase": "Running"}),
        # lists merged by address are replaced completely
        ({}, {"podIPs": [{"ip": "a"}]}, {"podIPs": [{"ip": "a"}]}),
        (
            {"podIPs": [{"ip": "a"}]},
            {"podIPs": [{"ip": "b"}]},
            {"podIPs": [{"ip": "b"}, {"$patch": "replace"}]},
        ),
        ({"qosClass": "x"}, {"qosClass": "y"}, {"qosClass": "y"}),
        # conditions
        ({"conditions": [READY]}, {"conditions": [READY]}, None),
        ({}, {"conditions": [READY]}, {"conditions": [READY]}),
        (
            {"conditions": [{**READY, "reason": "x", "message": "m"}]},
            {"conditions": [{**READY, "reason": "y"}]},
            {"conditions": [{"message": None, **READY, "reason": "y"}]},
        ),
        ({"conditions": [{**READY, "reason": ""}]}, {"conditions": [READY]}, None),
        ({"conditions": [READY]}, {}, {"conditions": [{"type": "Ready", "$patch": "delete"}]}),
        ({"conditions": [FOREIGN]}, {}, None),
        (
            {"conditions": [FOREIGN, READY]},
            {"conditions": [FOREIGN]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
        ),
        ({}, {"volumeHealth": [SICK]}, {"volumeHealth": [SICK]}),
        (
            {"volumeHealth": [SICK]},
            {"volumeHealth": [{"name": "v", "healthConditions": []}]},
            {"volumeHealth": [{"name": "v", "healthConditions": []}]},
        ),
    ],
)
def test_the_patch(in_api: Any, reported: Any, changed: Any) -> None:
    expected = None if changed is None else {"metadata": {"uid": "u"}, "status": changed}
    assert status_patch("u", in_api, reported) == expected


MADE: Any = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": T0}
STARTING: Any = {"phase": "Pending", "conditions": [{**READY, "status": "False"}]}
WAITING: Any = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}
RUNNING: Any = {"name": "c", "state": {"running": {"startedAt": T0}}}


@pytest.mark.parametrize(
    ("in_api", "reported", "waits"),
    [
        # a deletion begins, which only the observed generation shows
        (
            {"phase": "Running", "observedGeneration": 1, "conditions": [READY]},
            {
                "phase": "Running",
                "observedGeneration": 2,
                "conditions": [{**READY, "observedGeneration": 2}],
            },
            True,
        ),
        # the sandbox exists, the container does not
        (
            {**STARTING, "containerStatuses": [WAITING]},
            {
                **STARTING,
                "containerStatuses": [WAITING],
                "podIP": "a",
                "podIPs": [{"ip": "a"}],
                "conditions": [*STARTING["conditions"], MADE],
            },
            True,
        ),
        # changes that clients wait for
        ({}, STARTING, False),
        (STARTING, {"phase": "Running", "conditions": [READY]}, False),
        (STARTING, {**STARTING, "initContainerStatuses": [RUNNING]}, False),
        (STARTING, {**STARTING, "containerStatuses": [WAITING]}, False),
        (STARTING, {**STARTING, "message": "m"}, False),
        (
            {"phase": "Running", "conditions": [READY]},
            {"phase": "Running", "conditions": [{**READY, "status": "False"}]},
            False,
        ),
        (
            {"phase": "Running", "conditions": [READY]},
            {"phase": "Running", "conditions": [{**READY, "reason": "x"}]},
            False,
        ),
        # a pod that runs loses its sandbox, or gets another address
        (
            {"phase": "Running", "conditions": [MADE]},
            {"phase": "Running", "conditions": [{**MADE, "status": "False"}]},
            False,
        ),
        ({"phase": "Running", "podIP": "a"}, {"phase": "Running", "podIP": "b"}, False),
    ],
)
def test_a_step_on_the_way_waits_for_the_next_change(
    in_api: Any, reported: Any, waits: bool
) -> None:
    assert may_wait(in_api, reported) is waits


# The part of a pod's status that the API does not show, and since when.

WRITE_PROBLEM_READY = {"type": "Ready", "status": "True"}
RUNS = {"name": "main", "state": {"running": {}}, "restartCount": 1}
ENDED = {"name": "main", "state": {"terminated": {"exitCode": 3}}, "restartCount": 1}


def status(name: str = "Running", *entries: Any, **more: Any) -> Any:
    return {"phase": name, "containerStatuses": list(entries), **more}


@pytest.mark.parametrize(
    ("old", "new", "stated"),
    [
        ({}, {}, ""),
        ({}, status("Running", RUNS), "phase Running instead of Pending, container main running"),
        (status("Running", RUNS), status("Running", RUNS), ""),
        (
            status("Running", RUNS, conditions=[WRITE_PROBLEM_READY]),
            status("Running", ENDED),
            "not Ready, container main ended with exit code 3",
        ),
        (status("Running"), status("Running", conditions=[WRITE_PROBLEM_READY]), "Ready"),
        (
            status("Running", RUNS),
            status("Running", {**RUNS, "restartCount": 2}),
            "container main restarted 2 times",
        ),
        (
            status("Running", {"name": "main", "state": {"waiting": {}}}),
            status("Running", RUNS),
            "container main running",
        ),
        (
            status("Pending", initContainerStatuses=[RUNS]),
            status("Pending", initContainerStatuses=[ENDED]),
            "container main ended with exit code 3",
        ),
        (
            {},
            status("Pending", *({**ENDED, "name": f"c{n}"} for n in range(7))),
            ", ".join(f"container c{n} ended with exit code 3" for n in range(5)) + " and 2 more",
        ),
    ],
)
def test_the_text_of_an_unreported_status(old: Any, new: Any, stated: str) -> None:
    assert unreported(old, new) == stated


async def test_a_write_without_an_answer_is_a_problem_after_a_while() -> None:
    """The time is that of the first unreported change, not of the newest."""
    api = RecordingApi()
    api.gate = asyncio.Event()
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(LATE_S - 1)
    assert of.problem(pod().uid) is None
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await asyncio.sleep(2)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert (problem.message, problem.count) == (NO_ANSWER, 0)
    assert problem.since == pytest.approx(EPOCH + began)
    assert "phase Failed instead of Pending" in problem.unreported
    api.gate.set()
    await settle(of)
    assert of.problem(pod().uid) is None


async def test_a_refused_write_counts_from_the_change_also_after_a_success() -> None:
    api = RecordingApi()
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    await asyncio.sleep(60)
    api.failures = [Unavailable("refused")] * 3
    changed = EPOCH + asyncio.get_running_loop().time()
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await asyncio.sleep(0.1)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert problem.since == pytest.approx(changed)
    assert "phase Failed instead of Running" in problem.unreported
    await settle(of)
    assert of.problem(pod().uid) is None


async def test_a_static_pod_without_a_mirror_pod_is_not_reported() -> None:
    metadata = {**pod().metadata, "annotations": {"kubernetes.io/config.source": "file"}}
    static = type(pod())({**pod().object, "metadata": metadata})  # type: ignore[typeddict-item]
    of = manager(RecordingApi())
    of.set_status(static, phase("Running"))
    await asyncio.sleep(LATE_S + 1)
    problem = of.problem(static.uid)
    assert problem is not None
    assert (problem.message, problem.count) == (NO_MIRROR, 0)
