"""Which attempt a start is when the runtime has no record: by logs and by the status in the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.runtime_manager.plan.actions import NO_RUN, attempt_by_logs, last_run_reported


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
