"""The restart count in the API: from the record, from the previous status, or one more."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.status.container_status import finished_status
from kubeletpy.status.generate import generate_api_pod_status
from tests.kit.status import inputs, pod, record, reported, runtime

ENDED = {"exitCode": 3}
X, SAME = {"containerID": "containerd://x"}, {"containerID": "containerd://a-2"}


def counted(count: int, extra: dict[str, str], **state: Any) -> dict[str, Any]:
    return reported("a", **state, extra={"restartCount": count, **extra})


@pytest.mark.parametrize(
    ("before", "has", "count"),
    [
        (None, runtime(), 0),
        (None, runtime(record("a", attempt=2)), 2),
        (counted(5, X, waiting={}), runtime(), 5),
        (counted(5, X, running={}), runtime(), 6),
        (counted(5, X, terminated=ENDED), runtime(), 5),
        (counted(1, X, running={}), runtime(record("a", attempt=2)), 2),
        (counted(5, X, running={}), runtime(record("a", attempt=2)), 5),
        # it ended and another runs: one more, unless the record already counts it
        (counted(0, X, terminated=ENDED), runtime(record("a", attempt=2)), 2),
        (counted(1, X, terminated=ENDED), runtime(record("a", attempt=2)), 2),
        (counted(2, X, terminated=ENDED), runtime(record("a", attempt=2)), 3),
        (counted(3, X, terminated=ENDED), runtime(record("a", attempt=2)), 4),
        (counted(3, SAME, terminated=ENDED), runtime(record("a", attempt=2)), 3),
        (counted(3, X, terminated=ENDED), runtime(record("a", "exited", 1, attempt=2)), 3),
        (counted(3, SAME, running={}), runtime(record("a", "unknown", attempt=2)), 4),
        (counted(3, SAME, waiting={}), runtime(record("a", "unknown", attempt=2)), 3),
    ],
)
def test_restart_count(before: dict[str, Any] | None, has: PodRuntimeStatus, count: int) -> None:
    old: Any = {"containerStatuses": [before]} if before else {}
    (entry,) = generate_api_pod_status(inputs(pod(), has, old=old))["containerStatuses"]
    assert entry["restartCount"] == count


def test_a_deleted_pods_lost_container_is_not_restarted() -> None:
    deleted = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    old: Any = {"containerStatuses": [counted(5, X, running={})]}
    (entry,) = generate_api_pod_status(inputs(deleted, runtime(), old=old))["containerStatuses"]
    assert entry["restartCount"] == 5


FIRST = {"terminated": {**ENDED, "containerID": "containerd://a-0"}}
"""The end of the only container that has run."""


def test_an_attempt_that_never_ran_is_counted_once() -> None:
    """Its record goes, and the end before it is the newest again; then the next attempt runs."""
    never: Any = {"containerStatuses": [counted(1, X, waiting={}) | {"lastState": FIRST}]}
    ended = record("a", "exited", 3)
    between = generate_api_pod_status(inputs(pod(), runtime(ended), old=never))
    (entry,) = between["containerStatuses"]
    assert (entry["state"], entry["restartCount"]) == ({"waiting": {}}, 1)
    assert finished_status(pod(), between, 0)["containerStatuses"][0]["state"] == FIRST

    runs = runtime(record("a", attempt=1), ended)
    (entry,) = generate_api_pod_status(inputs(pod(), runs, old=between))["containerStatuses"]
    assert entry["restartCount"] == 1


def test_the_end_before_an_attempt_that_never_ran_is_shown_where_none_follows() -> None:
    never: Any = {"containerStatuses": [counted(1, X, waiting={}) | {"lastState": FIRST}]}
    once = pod(restartPolicy="Never")
    new = generate_api_pod_status(inputs(once, runtime(record("a", "exited", 3)), old=never))
    assert new["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
