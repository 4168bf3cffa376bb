"""Which failed starts the agent itself caused, by messages recorded from real runtimes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.read.status_reader import MOST_FAILED, OwnStarts, is_abandoned_start

TASK = "failed to create containerd task: failed to"
RUNC = (
    f"{TASK} create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process:"
)


def ended(message: str, **changes: Any) -> cri.ContainerStatus:
    """A start that containerd ended with an error."""
    fields = {
        "id": "c",
        "state": cri.CONTAINER_EXITED,
        "reason": "StartError",
        "exit_code": 128,
        "finished_at": 7,
        "message": message,
        **changes,
    }
    return cri.ContainerStatus(**fields)


@pytest.mark.parametrize(
    "message",
    [
        f"{TASK} create shim task: context canceled",  # containerd 2.1
        'failed to start containerd task "c": context canceled',
        f"{TASK} create shim task: context canceled: unknown",  # containerd 1.6
        'failed to start containerd task "c": context canceled: unknown',
        f"{TASK} start shim: start failed: : context canceled",
        f"{TASK} start shim: start failed: : signal: killed: unknown",
        f"{TASK} get task pid: context canceled: unknown",
        "context canceled",
    ],
)
def test_a_canceled_call_is_no_end_of_the_container(message: str) -> None:
    assert is_abandoned_start(ended(message))


@pytest.mark.parametrize(
    "message",
    [
        "",
        f'{RUNC} exec: "context canceled": executable file not found in $PATH',
        f'{RUNC} exec: "context canceled": executable file not found in $PATH: unknown',
        f'{RUNC} exec: "/x: context canceled": stat /x: context canceled: no such file or '
        "directory: unknown",
        f"{TASK} create shim task: context deadline exceeded: unknown",
        f"{TASK} create shim task: signal: killed: unknown",
        f"{TASK} create shim task: xcontext canceled",
        "context canceled: unknown: more",
    ],
)
def test_a_container_that_cannot_start_has_ended(message: str) -> None:
    assert not is_abandoned_start(ended(message))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": cri.CONTAINER_RUNNING},
        {"state": cri.CONTAINER_CREATED},
        {"reason": "Error"},
        {"exit_code": 137},
        {"started_at": 5},
    ],
)
def test_only_a_start_can_be_abandoned(changes: dict[str, Any]) -> None:
    assert is_abandoned_start(ended("context canceled"))
    assert not is_abandoned_start(ended("context canceled", **changes))


@pytest.mark.parametrize(
    ("code", "abandoned"),
    [
        (Code.UNKNOWN, False),
        (Code.DEADLINE_EXCEEDED, False),
        (Code.UNAVAILABLE, True),
        (Code.CANCELLED, True),
    ],
)
def test_an_end_that_was_answered_counts(code: Code, abandoned: bool) -> None:
    starts = OwnStarts()
    assert starts.may_adopt("c")
    starts.failed("c", code)
    assert not starts.may_adopt("c")
    assert starts.has_failed("c") is not abandoned
    assert starts.is_abandoned(ended("context canceled")) is abandoned


def test_one_that_could_not_be_adopted_is_no_attempt() -> None:
    starts = OwnStarts()
    starts.refused("c")
    assert not starts.may_adopt("c")
    assert not starts.has_failed("c")
    assert starts.is_abandoned(ended("context canceled"))


def test_the_record_of_failed_starts_is_bounded() -> None:
    starts = OwnStarts()
    for number in range(MOST_FAILED + 1):
        starts.failed(str(number), Code.UNKNOWN)
    assert not starts.has_failed("0")
    assert starts.has_failed("1")
