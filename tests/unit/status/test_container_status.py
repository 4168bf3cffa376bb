"""Container statuses from records and the status before (docs/reference/behaviour.md, e4)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.runtime_status import ContainerState, RuntimeUser, StartError
from kubeletpy.status.container_status import (
    ContainerStatusInputs,
    completed_status,
    container_statuses,
    finished_status,
)
from tests.kit.status import pod, record, reported, runtime

S = 10**9
INIT = [{"name": "i"}]
SIDECAR = [{"name": "i", "restartPolicy": "Always"}]
ENDED = {"exitCode": 7}
ERROR = {"a": StartError("CrashLoopBackOff", "back-off"), "i": StartError("ErrImagePull", "no")}


def made(
    of: Any, has: Any, *old: Any, kind: ContainerKind = ContainerKind.REGULAR, **facts: Any
) -> list[Any]:
    inputs = ContainerStatusInputs(pod=of, runtime=has, runtime_name="containerd", **facts)
    listed = of.init_containers if kind is ContainerKind.INIT else of.containers
    return container_statuses(inputs, kind, listed, old)


def one(*args: Any, **facts: Any) -> Any:
    (status,) = made(*args, **facts)
    return status


def test_regular_ones_by_name_init_ones_as_in_the_spec() -> None:
    of = pod("b", "a", init=[{"name": "y"}, {"name": "x"}])
    assert [s["name"] for s in made(of, runtime())] == ["a", "b"]
    assert [s["name"] for s in made(of, runtime(), kind=ContainerKind.INIT)] == ["y", "x"]


@pytest.mark.parametrize(
    ("old", "state", "count", "last"),
    [
        (None, {"waiting": {"reason": "ContainerCreating"}}, 0, {}),
        (
            reported("a", waiting={}, last=ENDED, extra={"restartCount": 3}),
            {"waiting": {"reason": "ContainerCreating"}},
            3,
            ENDED,
        ),
        (
            reported("a", running={}, last=ENDED, extra={"restartCount": 3}),
            {"waiting": {"reason": "ContainerCreating"}},
            3,
            ENDED,
        ),
    ],
)
def test_without_a_record(old: Any, state: Any, count: int, last: Any) -> None:
    status = one(pod(), runtime(), *([old] if old else []))
    assert (status["state"], status["restartCount"]) == (state, count)
    assert status["lastState"].get("terminated", {}) == last
    assert (status["ready"], status["imageID"]) == (False, "")


@pytest.mark.parametrize(
    ("metadata", "count"), [({}, 3), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, 2)]
)
def test_a_lost_container_counts_as_a_restart_unless_the_pod_is_deleted(
    metadata: Any, count: int
) -> None:
    old = reported("a", running={}, extra={"restartCount": 2})
    status = one(pod(metadata=metadata), runtime(), old)
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert status["restartCount"] == count


@pytest.mark.parametrize(
    ("old", "state", "count", "exit_code"),
    [
        (None, "ContainerCreating", 0, None),
        (reported("a", waiting={}), "ContainerCreating", 0, None),
        (reported("a", running={}, extra={"restartCount": 2}), "RestartingAllContainers", 3, 137),
        (reported("a", terminated=ENDED), "RestartingAllContainers", 1, 7),
    ],
)
def test_removed_to_restart_all(old: Any, state: str, count: int, exit_code: int | None) -> None:
    status = one(pod(), runtime(), *([old] if old else []), restarting_all=True)
    assert status["state"]["waiting"]["reason"] == state
    assert status["restartCount"] == count
    assert status["lastState"].get("terminated", {}).get("exitCode") == exit_code


@pytest.mark.parametrize(
    ("init", "has", "state"),
    [
        (INIT, [], "waiting"),
        (INIT, [record("x")], "waiting"),
        (INIT, [record("a")], "terminated"),
        (SIDECAR, [record("a")], "waiting"),
    ],
)
def test_an_init_container_is_done_once_a_regular_one_was_made(
    init: Any, has: Any, state: str
) -> None:
    status = one(pod(init=init), runtime(*has), kind=ContainerKind.INIT)
    assert list(status["state"]) == [state]


def test_a_regular_container_is_never_done_for_the_others() -> None:
    of = pod("a", "b", init=INIT)
    assert [list(s["state"]) for s in made(of, runtime(record("b")))] == [["waiting"], ["running"]]


@pytest.mark.parametrize(
    ("mount", "able", "recursive"),
    [
        ({}, True, None),
        ({"readOnly": True}, True, "Disabled"),
        ({"readOnly": True, "recursiveReadOnly": "Disabled"}, True, "Disabled"),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, True, "Enabled"),
        ({"readOnly": True, "recursiveReadOnly": "Enabled"}, True, "Enabled"),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, False, "Disabled"),
    ],
)
def test_read_only_mounts(mount: Any, able: bool, recursive: str | None) -> None:
    of = pod({"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]})
    expected: dict[str, Any] = {"name": "v", "mountPath": "/v"}
    if recursive is not None:
        expected |= {"readOnly": True, "recursiveReadOnly": recursive}
    for has in (runtime(), runtime(record("a"))):
        assert one(of, has, recursive_read_only=able)["volumeMounts"] == [expected]
    assert "volumeMounts" not in one(pod(), runtime())


THIS = {"containerID": "containerd://a-1"}


@pytest.mark.parametrize(
    ("has", "old", "count", "last"),
    [
        # the runtime's count, unless a higher one is known
        (record("a", attempt=1), None, 1, None),
        (record("a", attempt=1), reported("a", running={}, extra={"restartCount": 4}), 4, None),
        # another container ended before: it becomes the last state and counts as one restart
        (
            record("a", attempt=1),
            reported("a", terminated=ENDED, extra={"restartCount": 4}),
            5,
            ENDED,
        ),
        (
            record("a", attempt=1),
            reported("a", terminated=ENDED, extra={"restartCount": 1}),
            2,
            ENDED,
        ),
        (record("a", attempt=1), reported("a", terminated=ENDED), 1, ENDED),
        (
            record("a", attempt=1),
            reported("a", terminated=ENDED, extra={**THIS, "restartCount": 4}),
            4,
            None,
        ),
        (
            record("a", "exited", 1, attempt=1),
            reported("a", terminated=ENDED, extra={"restartCount": 4}),
            4,
            ENDED,
        ),
        # a record in an unknown state
        (record("a", "unknown", attempt=1), reported("a", running={}), 1, None),
        (
            record("a", "unknown", attempt=1),
            reported("a", running={}, extra={"restartCount": 4}),
            5,
            None,
        ),
        (
            record("a", "unknown", attempt=1),
            reported("a", waiting={}, extra={"restartCount": 4}),
            4,
            None,
        ),
    ],
)
def test_restart_count_and_last_state(has: Any, old: Any, count: int, last: Any) -> None:
    status = one(pod(), runtime(has), *([old] if old else []))
    assert status["restartCount"] == count
    assert status["lastState"].get("terminated") == last


@pytest.mark.parametrize("field", ["started", "ready"])
@pytest.mark.parametrize(
    ("state", "extra", "before", "after"),
    [
        ("running", THIS, True, True),
        ("running", THIS, False, False),
        ("running", THIS, None, False),
        ("running", {"containerID": "containerd://a-0"}, True, False),
        ("exited", THIS, True, False),
    ],
)
def test_started_and_ready_are_kept_for_the_same_container(
    field: str, state: str, extra: Any, before: bool | None, after: bool
) -> None:
    known = extra if before is None else {**extra, field: before}
    status: Any = one(
        pod(), runtime(record("a", state, attempt=1)), reported("a", running={}, extra=known)
    )
    assert bool(status.get(field)) is after


@pytest.mark.parametrize("uid", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_the_user_it_runs_as(uid: int) -> None:
    """Linux' ids have 32 bits without a sign; behaviour.md, u: ka70."""
    user = RuntimeUser(uid=uid, gid=uid, supplemental_groups=(uid,))
    status = one(pod(), runtime(record("a", user=user)))
    assert status["user"] == {"linux": {"uid": uid, "gid": uid, "supplementalGroups": [uid]}}
    assert "user" not in one(pod(), runtime(record("a")))


@pytest.mark.parametrize(
    ("state", "old", "restarting", "reason"),
    [
        ("created", None, False, None),
        ("created", reported("a", running={}), False, None),
        ("unknown", reported("a", waiting={}), False, None),
        ("unknown", None, False, None),
        ("unknown", reported("a", running={}), False, "ContainerStatusUnknown"),
        ("unknown", reported("a", running={}), True, "RestartingAllContainers"),
    ],
)
def test_a_record_that_neither_runs_nor_ended(
    state: str, old: Any, restarting: bool, reason: str | None
) -> None:
    status = one(pod(), runtime(record("a", state)), *([old] if old else []),
                 restarting_all=restarting)  # fmt: skip
    assert status["state"].get("terminated", {}).get("reason") == reason
    assert ("waiting" in status["state"]) is (reason is None)


def test_messages_of_ended_containers() -> None:
    ended = one(pod(), runtime(record("a", "exited", 1, message="died")))["state"]["terminated"]
    assert ended["message"] == "died"
    silent = one(pod(), runtime(record("a", "exited", 1)))["state"]["terminated"]
    assert "message" not in silent


REMOVED = record("i", "exited", 0)
FAILED = record("i", "exited", 1)
ONE = record("i", "exited", -1)


@pytest.mark.parametrize(
    ("init", "has", "waits"),
    [
        (INIT, [], True),
        (INIT, [record("a")], False),
        (INIT, [REMOVED], False),
        (INIT, [FAILED], True),
        (INIT, [ONE], True),
        (INIT, [FAILED, record("a")], True),
        (INIT, [record("i")], False),
        (INIT, [record("i", "created")], True),
        (SIDECAR, [REMOVED], True),
        (SIDECAR, [record("a")], True),
    ],
)
def test_a_start_error_of_an_init_container(init: Any, has: Any, waits: bool) -> None:
    status = one(pod(init=init), runtime(*has), kind=ContainerKind.INIT, start_errors=ERROR)
    shows = status["state"].get("waiting", {}).get("reason") == "ErrImagePull"
    assert shows is waits


@pytest.mark.parametrize(
    ("policy", "has", "waits"),
    [
        ("Always", record("a", "exited", 0), True),
        ("OnFailure", record("a", "exited", 0), False),
        ("OnFailure", record("a", "exited", 1), True),
        ("Never", record("a", "exited", 1), False),
        ("Always", record("a"), False),
        ("Never", record("b"), True),
    ],
)
def test_a_start_error_of_a_regular_container(policy: str, has: Any, waits: bool) -> None:
    status = one(pod(restartPolicy=policy), runtime(has), start_errors=ERROR)
    assert ("waiting" in status["state"]) is waits
    if waits:
        assert status["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        ended = status["lastState"].get("terminated")
        assert (ended is None) is (has.name == "b")


def test_the_record_before_is_the_last_state() -> None:
    has = runtime(
        record("a", attempt=2), record("a", "exited", 3, attempt=1), record("a", "exited")
    )
    last = one(pod(), has)["lastState"]["terminated"]
    assert (last["exitCode"], last["containerID"]) == (3, "containerd://a-1")


SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(("started_at", "hidden"), [(0, True), (1, False)])
def test_a_start_error_is_hidden_if_the_container_uses_secrets(
    started_at: int, hidden: bool
) -> None:
    """A container that never ran has the runtime's message, which quotes its command line."""
    ended = replace(record("a", "exited", 128, message='no "s3cret"'), started_at=started_at)
    status = one(pod({"name": "a", "env": [SECRET]}), runtime(ended))
    assert ("s3cret" not in status["state"]["terminated"]["message"]) is hidden


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        (
            {"state": ContainerState.RUNNING, "started_at": 9 * S, "created_at": 8 * S},
            {"running": {"startedAt": "1970-01-01T00:00:09Z"}},
        ),
        (
            {"state": ContainerState.RUNNING, "started_at": 0, "created_at": 8 * S},
            {"running": {"startedAt": "1970-01-01T00:00:08Z"}},
        ),
        ({"state": ContainerState.RUNNING, "started_at": 0, "created_at": 0}, {"running": {}}),
        (
            {"started_at": 0, "created_at": 8 * S, "finished_at": 9 * S},
            {"startedAt": "1970-01-01T00:00:08Z", "finishedAt": "1970-01-01T00:00:09Z"},
        ),
        (
            {"started_at": 7 * S, "created_at": 6 * S, "finished_at": 0},
            {"startedAt": "1970-01-01T00:00:07Z", "finishedAt": "1970-01-01T00:00:07Z"},
        ),
        ({"started_at": 0, "created_at": 0, "finished_at": 0}, {}),
    ],
)
def test_an_unknown_time_is_never_shown_as_an_epoch(fields: Any, state: Any) -> None:
    exited = {"state": ContainerState.EXITED, **fields}
    found = one(pod(), runtime(replace(record("a"), **exited)))["state"]
    if "terminated" in found:
        found = {k: v for k, v in found["terminated"].items() if k.endswith("At")}
    assert found == state


@pytest.mark.parametrize("restarting", [False, True])
def test_a_lost_container_keeps_its_start_and_gets_an_end(restarting: bool) -> None:
    old = reported("a", running={"startedAt": "1970-01-01T00:01:40Z"})
    status = one(pod(), runtime(), old, restarting_all=restarting, now=200.0)
    ended = status["lastState"]["terminated"]
    assert ended["startedAt"] == "1970-01-01T00:01:40Z"
    assert ended["finishedAt"] == "1970-01-01T00:03:20Z"
    again = one(pod(), runtime(), status, restarting_all=restarting, now=300.0)
    assert again["lastState"] == status["lastState"]


def test_an_unknown_container_keeps_its_start_and_gets_an_end() -> None:
    old = reported("a", running={"startedAt": "1970-01-01T00:01:40Z"})
    unknown = replace(record("a"), state=ContainerState.UNKNOWN)
    ended = one(pod(), runtime(unknown), old, now=200.0)["state"]["terminated"]
    assert (ended["startedAt"], ended["finishedAt"]) == (
        "1970-01-01T00:01:40Z",
        "1970-01-01T00:03:20Z",
    )


# The final status of a pod when its worker is done (docs/reference/behaviour.md, f4).

NOW = 200.0
SINCE = "1970-01-01T00:01:40Z"
OK = {"exitCode": 0}
BAD = {"exitCode": 3}
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


RAN = {"containerID": "containerd://d-0"}


@pytest.mark.parametrize(
    ("known", "composed", "expected"),
    [
        ((), (), None),
        ((), (reported("d", waiting={}),), None),
        ((reported("d", terminated=OK),), (reported("d", waiting={}, extra=RAN),), None),
        ((), (reported("d", terminated=OK, extra=RAN),), "d"),
        ((reported("e", waiting={}),), (reported("d", terminated=OK, extra=RAN),), "de"),
    ],
)
def test_containers_that_ran_are_added_to_a_last_status(
    known: Any, composed: Any, expected: str | None
) -> None:
    field, last = "ephemeralContainerStatuses", {"phase": "Failed", "containerStatuses": []}
    if known:
        last |= {field: [*known]}
    new: Any = {"phase": "Succeeded", field: [*composed]}
    done: Any = completed_status(cast(Any, last), new)
    if expected is None:
        assert done is last
    else:
        assert {**done, field: last.get(field)} == {field: None, **last}
        assert [entry["name"] for entry in done[field]] == list(expected)


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
