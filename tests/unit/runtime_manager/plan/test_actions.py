"""The decisions that a plan reports."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.runtime_status import ContainerConfigError, Decision, KillReason, StartError
from kubeletpy.runtime_manager.plan.actions import (
    NO_RUN,
    KillContainer,
    PodActions,
    ResetContainer,
    StartContainer,
    attempt_by_logs,
    kill_decision,
    last_run_reported,
    start_decision,
    target_id,
)
from kubeletpy.runtime_manager.plan.resize import ResizePlan
from tests.kit.records import container, exited, has, running

NOTHING = PodActions(kill_pod=False, create_sandbox=False, sandbox_id="s", attempt=0)
APP: Any = container("app")
REGULAR = ContainerKind.REGULAR
START = StartContainer(REGULAR, APP, "it is new")


def starting(name: str) -> StartContainer:
    spec: Any = container(name)
    return StartContainer(REGULAR, spec, "it is new")


def test_a_start_in_backoff_becomes_a_wait() -> None:
    starts = tuple(starting(name) for name in ("crashes", "pulls", "fails", "goes"))
    first = Decision("create sandbox, attempt 0", "the pod has none")
    actions = replace(
        NOTHING, regular_to_start=starts, decisions=(first, *map(start_decision, starts))
    )
    errors = {
        "crashes": StartError("CrashLoopBackOff", "back-off 10s"),
        "pulls": StartError("ImagePullBackOff", "back-off pulling"),
        "fails": StartError("ErrImagePull", "no such image"),
        "other": StartError("CrashLoopBackOff", "of another pod"),
    }
    assert actions.decided(errors) == (
        first,
        Decision("hold container crashes back", "back-off 10s"),
        Decision("hold container pulls back", "back-off pulling"),
        Decision("start container fails", "it is new", starts="fails"),
        Decision("start container goes", "it is new", starts="goes"),
    )
    assert actions.decided({}) == actions.decisions


@pytest.mark.parametrize(
    ("create", "sandbox", "replaces"),
    [(True, "s", True), (True, "", False), (False, "s", False), (False, "", False)],
)
def test_a_sandbox_is_replaced(create: bool, sandbox: str, replaces: bool) -> None:
    actions = replace(NOTHING, create_sandbox=create, sandbox_id=sandbox)
    assert actions.replaces_sandbox is replaces


@pytest.mark.parametrize(
    ("change", "nothing"),
    [
        ({}, True),
        ({"decisions": (Decision("leave container app", "it runs"),)}, True),
        ({"kill_pod": True}, False),
        ({"create_sandbox": True}, False),
        (
            {
                "containers_to_kill": (
                    KillContainer("id", "app", REGULAR, APP, "", KillReason.UNKNOWN_STATE),
                )
            },
            False,
        ),
        (
            {
                "containers_to_reset": (
                    ResetContainer("id", "app", REGULAR, APP, kill=False, source=False),
                )
            },
            False,
        ),
        ({"ephemeral_to_start": (START,)}, False),
        ({"init_to_start": (START,)}, False),
        ({"regular_to_start": (START,)}, False),
        ({"resize": ResizePlan(pod="its limits differ")}, False),
    ],
)
def test_nothing_to_do(change: dict[str, Any], nothing: bool) -> None:
    assert replace(NOTHING, **change).nothing_to_do is nothing


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (ContainerKind.REGULAR, "kill container app (id)"),
        (ContainerKind.INIT, "kill init container app (id)"),
        (ContainerKind.EPHEMERAL, "kill ephemeral container app (id)"),
    ],
)
def test_the_decision_of_a_kill_has_container_and_reason(kind: ContainerKind, what: str) -> None:
    kill = KillContainer("id", "app", kind, APP, "its probe failed", KillReason.STARTUP_PROBE)
    assert kill_decision(kill) == Decision(
        what, "its probe failed", killed="app", kill_reason=KillReason.STARTUP_PROBE
    )


# Which attempt a start is when the runtime has no record: by logs and by the status in the API.


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], 0),
        (["0.log"], 1),
        (["0.log", "2.log", "10.log.20260101-000000.gz"], 11),
        (["999999999.log", "1000000000.log"], 10**9),
        (["x.log", "3.txt", "4", "5.logs", "٣.log", "99999999999999.log"], 0),
    ],
)
@pytest.mark.parametrize("last_run", [None, NO_RUN, 3])
def test_logs_with_text_are_counted(files: list[str], expected: int, last_run: int | None) -> None:
    assert attempt_by_logs(dict.fromkeys(files, 1), last_run) == expected


@pytest.mark.parametrize(
    ("files", "last_run", "expected"),
    [
        ({"0.log": 0}, NO_RUN, 0),
        ({"0.log": 0}, 0, 1),
        ({"0.log": 0}, None, 1),
        ({"0.log": 9, "1.log": 0}, 0, 1),
        ({"0.log": 9, "1.log": 0}, NO_RUN, 1),
        ({"0.log": 9, "1.log": 0}, 1, 2),
        ({"0.log": 9, "1.log": 0}, 7, 2),
        ({"0.log": 0, "1.log": 9}, NO_RUN, 2),
        ({"0.log": 0, "0.log.20260101-000000": 9}, NO_RUN, 1),
        ({"0.log": 0, "0.log.20260101-000000.gz": 0}, NO_RUN, 1),
        ({"0.log": 0, "00.log": 3}, NO_RUN, 1),
        ({"0.log": 0, "5.txt": 3}, NO_RUN, 0),
    ],
)
def test_an_empty_newest_log_is_not_counted_unless_that_attempt_ran(
    files: dict[str, int], last_run: int | None, expected: int
) -> None:
    assert attempt_by_logs(files, last_run) == expected


def reported(kind: str = "containerStatuses", **status: Any) -> Any:
    other = {"name": "other", "restartCount": 9, "containerID": "cri-o://9"}
    return {kind: [other, {"name": "app", **status}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, None),
        ({}, NO_RUN),
        ({"containerStatuses": None}, NO_RUN),
        (reported(restartCount=0, state={"waiting": {"reason": "ContainerCreating"}}), NO_RUN),
        (reported(restartCount=0, state={}, lastState={}), NO_RUN),
        (reported(restartCount=2, state={"waiting": {"reason": "CrashLoopBackOff"}}), 2),
        (reported(restartCount=0, state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}), 0),
        (reported(restartCount=0, state={"terminated": {"exitCode": 1}}), 0),
        (reported(restartCount=0, lastState={"terminated": {"exitCode": 1}}), 0),
        (reported(restartCount=1, containerID="cri-o://1"), 1),
        (reported(containerID="cri-o://1"), 0),
        (reported("initContainerStatuses", restartCount=3), 3),
        (reported("ephemeralContainerStatuses", containerID="cri-o://1"), 0),
    ],
)
def test_the_last_run_that_a_status_shows(status: Any, expected: int | None) -> None:
    assert last_run_reported(status, "app") == expected


# The container whose processes an ephemeral container sees.

STATUS = has(running("app"), exited("done"))


def of(target: object) -> Any:
    return cast(Any, {"name": "debug", "targetContainerName": target})


@pytest.mark.parametrize(("target", "found"), [("app", "id-app"), ("", ""), (None, ""), (5, "")])
def test_target(target: object, found: str) -> None:
    assert target_id(STATUS, of(target)) == found


@pytest.mark.parametrize("target", ["done", "unheard-of"])
def test_a_container_that_does_not_run_is_no_target(target: str) -> None:
    with pytest.raises(ContainerConfigError, match=f'^unable to find target container "{target}"$'):
        target_id(STATUS, of(target))
