"""The final status of a pod when its worker is done (docs/reference/behaviour.md, f4)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status.container_status import finished_status

from .samples import pod, reported

NOW = 200.0
SINCE = "1970-01-01T00:01:40Z"
OK = {"exitCode": 0}
BAD = {"exitCode": 3}
INIT = [{"name": "i"}]
SIDECAR = [{"name": "i", "restartPolicy": "Always"}]
STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}


@pytest.mark.parametrize(
    ("metadata", "phase", "expected"),
    [
        ({}, "Running", "Failed"),
        ({}, None, "Failed"),
        ({}, "Succeeded", "Succeeded"),
        ({}, "Failed", "Failed"),
        (STATIC, "Running", "Running"),
    ],
)
def test_the_phase(metadata: Any, phase: str | None, expected: str) -> None:
    status: Any = {"phase": phase} if phase else {}
    assert finished_status(pod(metadata=metadata), status, NOW)["phase"] == expected


def test_ended_containers_are_kept_and_running_ones_are_lost() -> None:
    runs = reported("b", running={"startedAt": SINCE}, extra={"ready": True})
    entries: Any = [reported("a", terminated=OK), runs]
    first, second = finished_status(pod("a", "b"), {"containerStatuses": entries}, NOW)[
        "containerStatuses"
    ]
    assert first == entries[0]
    ended = second["state"]["terminated"]
    assert ended["exitCode"] == 137
    assert (ended["startedAt"], ended["finishedAt"]) == (SINCE, "1970-01-01T00:03:20Z")
    assert (second["ready"], second["started"]) == (False, False)


@pytest.mark.parametrize(
    ("init", "statuses", "regular", "settled"),
    [
        (None, [], reported("a", waiting={}), True),
        (INIT, [], reported("a", waiting={}), False),
        (INIT, [], reported("a", running={}), True),
        (INIT, [], reported("a", waiting={}, last=BAD), True),
        (INIT, [reported("i", running={})], reported("a", waiting={}), False),
        (INIT, [reported("i", terminated=BAD)], reported("a", waiting={}), False),
        (INIT, [reported("i", terminated={"exitCode": 1})], reported("a", waiting={}), False),
        (INIT, [reported("i", terminated=OK)], reported("a", waiting={}), True),
        (INIT, [reported("i", waiting={}, last=OK)], reported("a", waiting={}), True),
        (INIT, [reported("i", waiting={}, last=BAD)], reported("a", waiting={}), False),
        (SIDECAR, [reported("i", running={})], reported("a", waiting={}), False),
        (
            SIDECAR,
            [reported("i", running={}, extra={"started": True})],
            reported("a", waiting={}),
            True,
        ),
        (
            SIDECAR,
            [reported("i", waiting={}, extra={"started": True})],
            reported("a", waiting={}),
            False,
        ),
        (SIDECAR, [reported("i", terminated=OK)], reported("a", waiting={}), False),
        # the last one counts
        (
            [*INIT, {"name": "j"}],
            [reported("i", terminated=OK), reported("j", waiting={})],
            reported("a", waiting={}),
            False,
        ),
        (
            [*SIDECAR, {"name": "j"}],
            [reported("i", waiting={}), reported("j", terminated=OK)],
            reported("a", waiting={}),
            True,
        ),
    ],
)
def test_regular_containers_are_settled_once_init_is_done(
    init: Any, statuses: Any, regular: Any, settled: bool
) -> None:
    status: Any = {"initContainerStatuses": statuses, "containerStatuses": [regular]}
    done = finished_status(pod(init=init), status, NOW)
    assert ("terminated" in done["containerStatuses"][0]["state"]) is settled


@pytest.mark.parametrize(
    ("states", "settled"),
    [
        (["waiting", "waiting"], 1),
        (["running", "waiting", "waiting"], 1),
        (["terminated", "running", "waiting"], 2),
        (["waiting", "waiting", "running"], 3),
        (["terminated", "again", "waiting"], 2),
    ],
)
def test_init_containers_that_began_are_settled(states: list[str], settled: int) -> None:
    entries: Any = [
        reported(str(i), waiting={}, last=BAD) if s == "again" else reported(str(i), **{s: {}})
        for i, s in enumerate(states)
    ]
    of = pod(init=[{"name": str(i)} for i in range(len(states))])
    done = finished_status(of, {"initContainerStatuses": entries}, NOW)["initContainerStatuses"]
    assert ["terminated" in entry["state"] for entry in done] == [
        index < settled for index in range(len(states))
    ]
